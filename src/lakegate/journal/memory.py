"""A journal that lasts as long as the process."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.model.run import Run


class MemoryJournal:
    """Implements :class:`lakegate.protocols.Journal` for unit tests."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def save(self, run: Run) -> None:
        """Insert or replace ``run``."""
        self._runs[run.run_id] = Run.model_validate_json(run.model_dump_json())

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        return self._runs.get(run_id)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return the runs whose id starts with ``prefix``, newest first."""
        return [run for run in self._newest_first() if run.run_id.startswith(prefix)]

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        return next((run for run in self._newest_first() if run.branch == branch), None)

    def runs(self, *, table: str | None = None, status: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Return runs, newest first."""
        chosen = [r for r in self._newest_first() if table in (None, r.table) and status in (None, r.status)]
        return chosen[:limit]

    def close(self) -> None:
        """Nothing to release."""

    def _newest_first(self) -> list[Run]:
        return sorted(self._runs.values(), key=lambda run: (run.started_at, run.run_id), reverse=True)
