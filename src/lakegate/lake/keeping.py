"""The facade's part that keeps the lake tidy: recovering, collecting, and the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from lakegate.config import HOME_NAME
from lakegate.flow.expire import drop_left_branches
from lakegate.flow.gc import gc
from lakegate.flow.rebuild import rebuild
from lakegate.flow.recover import recover, recover_now
from lakegate.lake.base import MAIN, LakeBase
from lakegate.model.durations import parse_duration
from lakegate.model.gc import GcReport
from lakegate.model.keeping import JournalStatus, RebuiltJournal
from lakegate.model.run import Run


class Keeping(LakeBase):
    """Keeps the lake tidy."""

    def recover(self, run_ids: Sequence[str] = ()) -> Sequence[Run]:
        """Finish or undo every run whose process died, by asking the catalog; every ingest does this first.

        A run that waits for its next step is left alone as long as :meth:`parked` tells. Branches that runs could not
        drop because the catalog was away are dropped, too.

        Args:
            run_ids: Settle these runs and nothing else, also when they wait for their next step: ids, or beginnings of
                ids that fit one run.

        Returns:
            The runs that were settled, as they ended; those of ``run_ids`` that had ended before, too.

        Raises:
            NotFoundError: When there is no such run, or more than one.
            RetryableError: When catalog or journal are away, or a process works on one of ``run_ids``.
        """
        rooms = self._wiring.rooms
        if run_ids:
            found = list(dict.fromkeys(self._find_run(run_id).run_id for run_id in run_ids))
            return tuple(recover_now(rooms, run_id) for run_id in found)
        settled = recover(rooms)
        drop_left_branches(rooms)
        return settled

    def parked(self) -> Mapping[str, datetime]:
        """Return by id until when each run that waits for its next step is left alone, the first to run out first."""
        return self._wiring.journal.parked()

    def gc(
        self,
        *,
        dry_run: bool = False,
        keep_rejected: str | timedelta | None = None,
        grace: str | timedelta | None = None,
    ) -> GcReport:
        """Drop branches of rejected and failed runs whose time is over, and delete files that no reference reaches.

        The warehouse must belong to this catalog alone. What ``gc.history`` puts out of reach of reading at an earlier
        time goes, too.

        Args:
            dry_run: Delete and drop nothing, only tell what would go.
            keep_rejected: How long branches are kept after their run ended, such as ``7d``; default: the settings.
            grace: Age below which a file is left alone, such as ``1d``; default: the settings.

        Raises:
            ConfigurationError: When a length of time cannot be read, or the warehouse cannot be listed.
            RetryableError: When catalog, journal or warehouse are away; what was not told of may be gone then.
        """
        if not dry_run:
            # A run that nobody works on any more would keep its files from being collected.
            recover(self._wiring.rooms)
        history = self.settings.gc.history
        return gc(
            self._wiring.rooms,
            files=self._wiring.files,
            keep_rejected=_span(keep_rejected, self.settings.ingest.keep_rejected),
            grace=_span(grace, self.settings.gc.grace),
            now=datetime.now(UTC),
            dry_run=dry_run,
            history=None if history is None else parse_duration(history),
        )

    def journal_status(self) -> JournalStatus:
        """Return where the journal is and what it knows. The catalog is not asked."""
        from lakegate.journal.schema import HEAD  # noqa: PLC0415 - loads sqlalchemy

        journal = self._wiring.journal
        newest = journal.runs(limit=1)
        runs, files = journal.count()
        return JournalStatus(
            location=self.settings.journal.url or str(self.home / HOME_NAME / "journal.db"),
            version=HEAD,
            synced=journal.synced(MAIN),
            runs=dict(runs),
            files=files,
            abandoned=tuple(run.run_id for run in journal.abandoned()),
            newest=newest[0].run_id if newest else None,
        )

    def rebuild_journal(self) -> RebuiltJournal:
        """Read from the whole history of ``main`` which files and runs were published, as after losing the journal.

        Raises:
            RetryableError: When catalog or journal are away; the journal is then as it was.
        """
        return rebuild(self._wiring.rooms, MAIN)


def _span(given: str | timedelta | None, configured: str) -> timedelta:
    if isinstance(given, timedelta):
        return given
    return parse_duration(configured if given is None else given)
