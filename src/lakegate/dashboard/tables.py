"""One table on ``main``: its columns, snapshots and check history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from lakegate.dashboard.model import ReadModel, ResultPage, TableFacts, lineage_of, paginate, searchable
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.checks import Severity
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import SUFFIX
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import CheckRecord, RunLine
from lakegate.model.tables import Snapshot, TableMetadata


class TableDetail(Value):
    """A table on ``main``.

    Attributes:
        quarantined: Its rows that wait in quarantine; ``None`` if unknown.
    """

    table: str
    commit: str
    metadata: TableMetadata
    facts: TableFacts
    quarantined: int | None = None


class CheckHistory(Value):
    """A check over the newest runs of a table.

    Attributes:
        failing: Rows that failed it in each run that judged it, oldest first; 0 where it passed.
        failing_since: The run in which it started to fail, without a pass since; ``None`` if it passed last.
        last_pass: When the newest of these runs in which it passed began.
    """

    check: str
    name: str
    severity: Severity
    failing: tuple[int, ...] = ()
    failing_since: RunLine | None = None
    last_pass: datetime | None = None


def get_table(model: ReadModel, table: str) -> TableDetail:
    """Return a table."""
    main, pointer = model.catalog.get_ref(MAIN), _pointer(model, table)
    aside = model.tables(main).get(f"{table}{SUFFIX}")
    quarantined: int | None = None
    with suppress(LakegateError):
        quarantined = 0 if aside is None else model.count_waiting(aside)
    return TableDetail(
        table=table,
        commit=main.hash,
        metadata=model.metadata(pointer),
        facts=model.facts(pointer),
        quarantined=quarantined,
    )


def list_snapshots(model: ReadModel, table: str, *, limit: int = 50, cursor: str | None = None) -> ResultPage[Snapshot]:
    """Return a page of the snapshots that led to a table's current one, which is the first.

    Expired snapshots aren't among them; :func:`lakegate.dashboard.runs.list_runs` knows older publishes.
    """
    pointer = _pointer(model, table)
    newest_first = lineage_of(model.reader.snapshots(pointer), pointer.snapshot_id)[::-1]
    shown, following = paginate(newest_first, cursor, limit)
    return ResultPage[Snapshot](items=shown, next=following, total=len(newest_first))


def check_history(model: ReadModel, table: str, *, limit: int = 40) -> tuple[CheckHistory, ...]:
    """Return the results of each check of a table in its newest runs, failing checks first."""
    table = searchable(table)
    lines = {line.run_id: line for line in model.journal.pages.newest_of([table], limit=limit)[table]}
    records: dict[str, list[CheckRecord]] = defaultdict(list)
    for record in model.journal.pages.checks(table, list(lines)):
        records[record.check].append(record)
    histories = [_history(of_check, lines) for of_check in records.values()]
    return tuple(sorted(histories, key=lambda one: (one.failing_since is None, one.severity == "warn", one.check)))


def _pointer(model: ReadModel, table: str) -> TablePointer:
    return model.table(TableIdentifier.parse(table), model.catalog.get_ref(MAIN))


def _history(records: Sequence[CheckRecord], lines: Mapping[str, RunLine]) -> CheckHistory:
    ordered = sorted(records, key=lambda record: (lines[record.run_id].started_at, record.run_id))
    judged = [record for record in ordered if record.verdict != "skipped"]
    passed = [place for place, record in enumerate(judged) if record.verdict == "pass"]
    failing = judged[passed[-1] + 1 :] if passed else judged
    return CheckHistory(
        check=ordered[-1].check,
        name=ordered[-1].name,
        severity=ordered[-1].severity,
        failing=tuple(record.failing_rows if record.verdict == "fail" else 0 for record in judged),
        failing_since=lines[failing[0].run_id] if failing else None,
        last_pass=lines[judged[passed[-1]].run_id].started_at if passed else None,
    )
