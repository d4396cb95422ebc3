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
        at: When it happened.
    """

    event: Event | Literal["test"]
    recovered: bool = False
    severity: Level
    tables: tuple[str, ...]
    run: Run | None = None
    late: LateTable | None = None
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
