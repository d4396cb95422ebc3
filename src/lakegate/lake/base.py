"""What all parts of the facade share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from lakegate.audits import parse_checks
from lakegate.config import Settings
from lakegate.errors import InputError, NotFoundError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier, is_commit_hash
from lakegate.model.refs import Ref
from lakegate.model.run import Run
from lakegate.wiring import Wiring

MAIN = "main"
Paths = str | Path | Sequence[str | Path]
Checks = Sequence[str | Check]


class LakeBase:
    """An open lake: its settings, its end, and how texts of users become values."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._wiring.settings

    @property
    def home(self) -> Path:
        """The project's folder."""
        return self._wiring.home

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End sessions and connections. Idempotent."""
        self._wiring.close()

    def _checks(self, table: TableIdentifier, checks: Checks, *, configured: bool) -> tuple[Check, ...]:
        texts = (*(self.settings.table(table).checks if configured else ()), *checks)
        parsed = (parse_checks(check) if isinstance(check, str) else (check,) for check in texts)
        return tuple({str(check): check for group in parsed for check in group}.values())

    def _configured(self, table: TableIdentifier) -> tuple[Check, ...]:
        return self._checks(table, (), configured=True)

    def _find_run(self, run_id: str) -> Run:
        found = self._wiring.journal.find(run_id)
        exact = [run for run in found if run.run_id == run_id] or found
        if len(exact) == 1:
            return exact[0]
        what = f"{len(exact)} runs start with" if exact else "There is no run"
        raise NotFoundError(f"{what} '{run_id}'.", hint="lakegate runs", run_id=run_id)

    def _resolve(self, ref: str, at: str | datetime | None) -> Ref:
        return self._wiring.catalog.resolve(ref, _parse_at(at))


def _parse_at(at: str | datetime | None) -> str | datetime | None:
    if at is None or (isinstance(at, str) and is_commit_hash(at)):
        return at
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InputError(
                f"'{at}' is neither a commit hash nor a time.",
                hint="Write a time as 2026-01-31T07:00:00Z; `lakegate log` shows times and commits.",
            ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
