"""The facade's part that takes an ingest in steps, for orchestrators."""

from __future__ import annotations

from typing import Unpack

from lakegate.flow.ingest import go_on, undo
from lakegate.lake.base import Paths
from lakegate.lake.writing import IngestOptions, Writing
from lakegate.model.run import Run


class Stepping(Writing):
    """Writes, audits and publishes in separate calls, by any process, each idempotent by run id."""

    def write(self, table: str, paths: Paths, **options: Unpack[IngestOptions]) -> Run:
        """Write files to a branch and leave the run there, for :meth:`audit_run` and :meth:`publish_run`.

        The first of the steps into which orchestrators take an ingest apart; each may be called again, by any process,
        and finds what was done. A run that waits for its next step is left alone for ``journal.park_s`` seconds, then
        :meth:`recover` finishes or undoes it.

        Args:
            table: ``namespace.table``; created on the branch when it does not exist.
            paths: Files, globs or folders; parquet or CSV.
            **options: See :class:`IngestOptions`; give a ``run_id`` so that a second call finds the first one's run.

        Returns:
            The run: ``staged``, or ``skipped`` when there is nothing new to publish; as it ended, when it has.

        Raises:
            InputError: When files, names or checks are wrong. Nothing was written.
            RetryableError: When catalog or engine are away: call it again, or :meth:`undo_run`.
        """
        return self._step(table, paths, options, until="write", parks=True)

    def audit_run(self, run_id: str) -> Run:
        """Audit what a run wrote; writes it first when that was lost.

        Returns:
            The run: ``rejected``, or ``staged`` with a report that has passed; as it ended, when it has.

        Raises:
            NotFoundError: When there is no such run.
            RetryableError: As :meth:`write`.
        """
        return go_on(self._wiring.rooms, run_id, until="audit")

    def publish_run(self, run_id: str) -> Run:
        """Publish what a run wrote, once; audits and writes it first when that was not done or is void.

        Returns:
            The run: ``published`` or ``rejected``; as it ended, when it has.

        Raises:
            NotFoundError: When there is no such run.
            RetryableError: As :meth:`write`.
            OutcomeUnknownError: When the catalog went away with the commit: calling it again finds out.
        """
        return go_on(self._wiring.rooms, run_id, until="publish")

    def undo_run(self, run_id: str, *, reason: str = "Given up by its orchestrator.") -> Run:
        """End a run that will not be gone on with, and drop its branch; what was published stays published.

        The branch of a rejected run stays if ``on_failure`` says so. Calling it again changes nothing.

        Raises:
            NotFoundError: When there is no such run.
            RetryableError: When another process works on it, or the catalog is away.
        """
        return undo(self._wiring.rooms, run_id, reason=reason)
