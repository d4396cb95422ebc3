"""What is told to people and programs outside, and its place among others of its kind."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.channels import Event, Level
from lakegate.model.run import Notification, Run


class Notice(Value):
    """One thing to be told.

    Attributes:
        event: What happened; of a run that recovery ended, what it came to.
        recovered: Whether recovery ended it.
        severity: How bad it is.
        tables: Tables it is about, as text.
        run: The run that ended; ``None`` when it is about none.
        late: The table that is late.
        file: The file that was given up.
        counted: How many notices it stands for that nobody was told of one by one; ``None`` when it is one itself.
        at: When it happened.
    """

    event: Event | Literal["test"]
    recovered: bool = False
    severity: Level
    tables: tuple[str, ...]
    run: Run | None = None
    late: LateTable | None = None
    file: GivenUpFile | None = None
    counted: int | None = None
    at: datetime


class AlertGroup(Value):
    """One message's place among those that say the same of a table within a length of time.

    Attributes:
        number: How many there were, this one included; 1 for the first.
        missed: How many before this one nobody was told of.
        thread: Where the first one was sent, if the channel has threads.
    """

    number: int
    missed: int = 0
    thread: str | None = None


class LateTable(Value):
    """A table to which nothing was published for longer than is expected.

    Attributes:
        expected_every: The length of time, as the settings say it.
        last: When something was published last; ``None`` when the journal knows of nothing.
        run_id: The run that published it.
    """

    table: str
    expected_every: str
    last: datetime | None = None
    run_id: str | None = None
    notifications: tuple[Notification, ...] = ()


class GivenUpFile(Value):
    """A source file that failed so often that it is left alone until it changes.

    Attributes:
        table: The table it was to go to.
        stamp: The state it is in, as :class:`lakegate.model.journal.Landing` has it.
        tries: How often it was tried in this state.
        code: What kind of error it was the last time.
        reason: Why it failed then, in one sentence.
        run_id: The run that was the last to try; ``None`` when it came to none.
    """

    table: str
    uri: str
    stamp: str
    tries: int
    code: str
    reason: str
    run_id: str | None = None


class CountedAlert(Value):
    """A group that is over, with messages that nobody was told of.

    Attributes:
        alert: What they say, as a key.
        about: The last one; of its run as much as tells which it was.
        place: The place of the last one.
    """

    channel: str
    alert: str
    about: Notice
    place: AlertGroup
