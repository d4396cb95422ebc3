"""Table maintenance: find what is due, by the settings and the tables' files, and do it.

Each action on a table is a run of its own. Nothing is remembered between rounds: the tables show what is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from lakegate.config import MaintenancePolicy
from lakegate.context import Context
from lakegate.errors import (
    CatalogUnavailableError,
    EngineUnavailableError,
    LakegateError,
    NotFoundError,
    RetryableError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport, MaintenanceAction, MaintenanceReport, MaintenanceStep, TableLayout
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import Run, RunError
from lakegate.model.words import counted, did_you_mean, parse_age, size

COMPACTED_AT = 5
"""Number of small files from which Iceberg compacts a partition (its ``min-input-files``)."""


@dataclass(frozen=True)
class Maintenance:
    """One round over the tables of ``main``.

    Attributes:
        policy_of: Returns a table's policy, which says when something is due.
        within: After this time, no new work starts; ``None`` for no limit.
        actions: Performs each action on a table.
        gc: Collects garbage at the end, unless it's ``None``.
        on_step: Called after each step.
    """

    context: Context
    policy_of: Callable[[TableIdentifier], MaintenancePolicy]
    within: timedelta | None
    actions: Mapping[MaintenanceAction, Callable[[str], Run]]
    gc: Callable[[], GcReport] | None
    on_step: Callable[[MaintenanceStep], object]

    def plan(self, names: Sequence[str] = ()) -> MaintenanceReport:
        """Return what is due for tables that match these names or patterns. Changes nothing."""
        number, steps = self._due(names)
        return self._report(number, steps, dry_run=True)

    def run(self, names: Sequence[str] = ()) -> MaintenanceReport:
        """Do what is due, and return the outcome.

        Raises:
            RetryableError: When another process is maintaining the lake, or the catalog or the journal is unavailable.
        """
        with self.context.journal.lock("maintenance", timeout_s=0) as is_ours:
            if not is_ours:
                raise RetryableError(
                    "Another process is maintaining this lake. Nothing was changed.",
                    hint="To see what it's doing: lakegate runs --kind maintenance",
                )
            began = time.monotonic()
            number, due_steps = self._due(names)
            steps, has_engine = list[MaintenanceStep](), True
            with self.context.narrator.step(f"Maintaining {counted(number, 'table')}") as progress:
                for done, step in enumerate(due_steps):
                    progress.progress(done, len(due_steps), "steps")
                    is_over = self.within is not None and time.monotonic() - began > self.within.total_seconds()
                    if step.status == "failed":  # its table can't be read
                        steps.append(step)
                    elif is_over or (step.action == "compact" and not has_engine):
                        steps.append(step.model_copy(update={"status": "left"}))
                    else:
                        steps.append(self._do(step))
                        error = steps[-1].error
                        has_engine = has_engine and (error is None or error.code != EngineUnavailableError.code)
                    self.on_step(steps[-1])
            return self._report(number, steps, dry_run=False)

    def _report(self, number: int, steps: list[MaintenanceStep], *, dry_run: bool) -> MaintenanceReport:
        """Run ``gc``, and return the report of the round."""
        collected: GcReport | None = None
        try:
            collected = None if self.gc is None else self.gc()
        except LakegateError as error:
            steps = [*steps, _failed(MaintenanceStep(table="", action="gc", reason="afterwards"), error)]
            self.on_step(steps[-1])
        return MaintenanceReport(dry_run=dry_run, tables=number, steps=tuple(steps), gc=collected)

    def _due(self, names: Sequence[str]) -> tuple[int, list[MaintenanceStep]]:
        """Return the number of tables, and the due steps: tables with the most small files first."""
        now, head = datetime.now(UTC), self.context.catalog.get_ref(MAIN)
        known = {str(pointer.table): pointer for pointer in self.context.catalog.list_tables(head)}
        for name in names:
            if not any(fnmatchcase(table, name) for table in known):
                raise NotFoundError(
                    f"No table on {MAIN} is called '{name}'.",
                    hint=f"{did_you_mean(name, sorted(known))}To list them: lakegate table list",
                    table=name,
                )
        wanted = {
            table: pointer
            for table, pointer in sorted(known.items())
            if not names or any(fnmatchcase(table, name) for name in names)
        }
        found: list[tuple[int, list[MaintenanceStep]]] = []
        with self.context.narrator.step(f"Looking at {counted(len(wanted), 'table')}") as progress:
            for done, (table, pointer) in enumerate(wanted.items()):
                progress.progress(done, len(wanted), "tables")
                found.append(self._due_for(table, pointer, now))
        return len(wanted), [step for _, steps in sorted(found, key=lambda one: -one[0]) for step in steps]

    def _due_for(self, table: str, pointer: TablePointer, now: datetime) -> tuple[int, list[MaintenanceStep]]:
        try:
            actions, small_files = due(self.context, pointer, self.policy_of(pointer.table), now)
        except CatalogUnavailableError:
            raise
        except LakegateError as error:
            return 0, [_failed(MaintenanceStep(table=table, action="compact", reason="its files can't be read"), error)]
        return small_files, [MaintenanceStep(table=table, action=one, reason=why) for one, why in actions.items()]

    def _do(self, step: MaintenanceStep) -> MaintenanceStep:
        try:
            run = self.actions[step.action](step.table)
        except CatalogUnavailableError:
            raise  # the next round continues
        except LakegateError as error:
            return _failed(step, error)
        status = "done" if run.publication is not None else "skipped"
        return step.model_copy(update={"status": status, "run_id": run.run_id})


def _failed(step: MaintenanceStep, error: LakegateError) -> MaintenanceStep:
    known = {"error": RunError.model_validate(error.to_dict()), "retryable": isinstance(error, RetryableError)}
    return step.model_copy(update={"status": "failed", **known})


def due(
    context: Context, pointer: TablePointer, policy: MaintenancePolicy, now: datetime
) -> tuple[dict[MaintenanceAction, str], int]:
    """Return the due actions of a table with their reasons, in the best order, and its number of small files."""
    if not policy.enabled:
        return {}, 0
    layout = context.reader.layout(
        pointer,
        small_bytes=_bytes(policy.small_file),
        at_least=COMPACTED_AT,
        data_files=min(policy.small_files, COMPACTED_AT) if policy.average_file else policy.small_files,
        delete_files=policy.delete_files,
    )
    found: dict[MaintenanceAction, str] = {}
    reasons = "; ".join(_compaction_reasons(layout, policy))
    if reasons:
        found["compact"] = reasons
    age = parse_age(policy.expire)
    old = context.reader.outdated_snapshots(pointer, at_least=policy.keep, before=now - age) if age else 0
    if old:
        found["expire"] = f"{counted(old, 'snapshot')} older than {policy.expire}"
    return found, layout.small_files


def _compaction_reasons(layout: TableLayout, policy: MaintenancePolicy) -> Iterator[str]:
    if layout.small_files >= policy.small_files:
        yield f"{counted(layout.small_files, 'file')} below {policy.small_file}"
    elif policy.average_file is not None and layout.small_files:
        average = layout.size_bytes // layout.data_files
        if average < _bytes(policy.average_file):
            yield f"{counted(layout.data_files, 'file')} of {size(average)} on average"
    if layout.delete_files >= policy.delete_files:
        yield counted(layout.delete_files, "delete file")


def _bytes(text: str) -> int:
    """Return a size in bytes.

    Example:
        >>> _bytes("64m"), _bytes("1g")
        (67108864, 1073741824)
    """
    return int(text[:-1]) << (20 if text.endswith("m") else 30)
