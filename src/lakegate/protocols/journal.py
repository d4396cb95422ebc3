"""What was intended, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim, HistoryEvent, Landing
from lakegate.model.notices import AlertGroup, CountedAlert, Notice
from lakegate.model.run import KnownFile, Notification, Run


class Journal(Protocol):
    """What was intended, and how it ended (``lakegate.journal``). The catalog stays the truth about data.

    All methods raise :class:`~lakegate.errors.RetryableError` when the journal is away or locked for too long.
    """

    # Runs

    def save(self, run: Run) -> None:
        """Insert or replace ``run`` by its id, with its steps and check results."""
        ...

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        ...

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        ...

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        ...

    def runs(
        self,
        *,
        table: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first."""
        ...

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and that of published versions of files, once for each table."""
        ...

    # Leases: which runs somebody is working on

    def begin(self, run: Run, *, anew: bool = False) -> None:
        """Save ``run`` and take its lease for this process, in one transaction.

        Args:
            run: The run.
            anew: Only when there is no run of this id yet, or one that has failed.

        Raises:
            RetryableError: Also when another process works on the run, or has begun it when it is to be begun ``anew``.
        """
        ...

    def renew(self, run_id: str) -> bool:
        """Tell that this process still works on the run; return whether the lease is still its own."""
        ...

    def end(self, run: Run) -> None:
        """Save ``run`` as it ended, drop its lease and settle its claims, in one transaction.

        A published run's claims become published files; any other run's claims are released.
        """
        ...

    def abandoned(self) -> Sequence[Run]:
        """Return the runs whose lease's holder is dead or has not renewed it in time, oldest first."""
        ...

    def take_over(self, run_id: str) -> bool:
        """Take an abandoned run's lease for this process; return whether that worked: only one taker gets it."""
        ...

    def park(self, run: Run, *, for_s: float) -> None:
        """Save ``run`` and leave its lease to whoever takes its next step, in one transaction.

        For ``for_s`` seconds only :meth:`resume` and :meth:`begin` get it; then it counts as abandoned.

        Raises:
            RetryableError: Also when another process has taken the run over.
        """
        ...

    def resume(self, run_id: str) -> Run | None:
        """Take the lease of a run that has not ended, for this process, and return the run as it was left.

        A run that has ended is returned without a lease; ``None`` when there is no such run.

        Raises:
            RetryableError: Also when another process works on the run.
        """
        ...

    def parked(self) -> Mapping[str, datetime]:
        """Return by id until when each run that waits for its next step is left alone."""
        ...

    def abandon(self, run_id: str) -> None:
        """Give up our lease of a run that has not ended: anyone may take it over at once."""
        ...

    # Source files

    def claim(
        self,
        run_id: str,
        table: str,
        files: Sequence[SourceFile],
        *,
        take_changed: bool = False,
        take_free: bool = True,
    ) -> Claim:
        """Claim source files for a run, each version once per table, in one transaction.

        Args:
            run_id: The run.
            table: Table the files go to, as text.
            files: Files in the version that was looked at: ``uri`` and ``version`` count.
            take_changed: Claim files whose path was published in another version.
            take_free: When some of the files are busy: claim the others all the same. Else nothing is claimed then.

        Returns:
            What was claimed, and why the rest was not.
        """
        ...

    def known(self, table: str, files: Sequence[SourceFile]) -> Claim:
        """Return what :meth:`claim` would answer a new run, and claim nothing (``claimed`` is empty then)."""
        ...

    def earlier(self, table: str, files: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return what was published to ``table`` under the paths of ``files`` in other versions than these."""
        ...

    def release(self, run_id: str) -> None:
        """Give back what the run claimed and did not publish."""
        ...

    # Landings: what became of the files that were looked for

    def landings(self, table: str, uris: Sequence[str]) -> Mapping[str, Landing]:
        """Return by URI what is known of the files' last landing for ``table``; those that are new are missing."""
        ...

    def note_landings(self, table: str, landings: Sequence[Landing]) -> None:
        """Write down what became of files, each in the place of what was known of its URI."""
        ...

    # Notifications: who was told of what

    def note_notifications(self, run_id: str, notifications: Sequence[Notification]) -> None:
        """Add to the run what came of telling of it; nothing else of the run is changed."""
        ...

    def join_alert(self, channel: str, alert: str, *, lead_s: float = 60.0, about: Notice | None = None) -> AlertGroup:
        """Add one message to those that say the same, and return its place among them.

        Args:
            channel: Name of the channel.
            alert: What it says, as a key.
            lead_s: Seconds within which the first message of a group is sent; if it is not, the next one is the first.
            about: What it says, if it may be told of later, with others of its group (:meth:`take_counted_alerts`).
        """
        ...

    def settle_alert(
        self,
        channel: str,
        alert: str,
        place: AlertGroup,
        *,
        sent: bool,
        thread: str | None = None,
        stands_s: float | None = None,
    ) -> None:
        """Write down whether the message at ``place`` was sent, in which thread, and for how long it stands for others.

        The group of one that was not sent is over in a minute, so that the next message is tried again then.

        Args:
            channel: Name of the channel.
            alert: What it says, as a key.
            place: As :meth:`join_alert` returned it.
            sent: Whether it was sent.
            thread: Where to, if the channel has threads.
            stands_s: Seconds from now on after which the next message begins a new group; as before when ``None``.
        """
        ...

    def take_counted_alerts(
        self, channels: Sequence[str], *, lead_s: float = 60.0, limit: int = 10
    ) -> Sequence[CountedAlert]:
        """Return groups that are over with messages that nobody was told of, each to one caller.

        Args:
            channels: Names of the channels that are asked for.
            lead_s: Seconds for which nobody else gets them; tell, and :meth:`settle_alert`, until then.
            limit: How many at most, the oldest first.
        """
        ...

    # What main's history says

    def synced(self, target: str) -> str | None:
        """Return the commit of ``target`` up to which its history is known here; ``None`` when nothing is."""
        ...

    def record(self, target: str, events: Sequence[HistoryEvent], head: str, *, rebuild: bool = False) -> None:
        """Take over what commits of ``target`` say (oldest first), in one transaction; ``head`` is then known.

        Published files are kept as published (whoever claimed them), those of reverted runs are forgotten, and runs
        that were published or reverted are marked so.

        Args:
            target: The branch.
            events: One for each commit that concerns runs.
            head: The newest commit seen.
            rebuild: Forget all published files first: the events are the whole history.
        """
        ...

    # Turns

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for our turn at ``name`` (a table to publish to), for ``timeout_s`` seconds at most.

        It spares rivals for one table from doing again what another one's commit made void; nothing depends on it for
        being right. Ends with the process that holds it.

        Returns:
            A context manager of whether we got it.
        """
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...
