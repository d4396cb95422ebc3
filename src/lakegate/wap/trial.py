"""Try a contract on files: report what an ingest of them would find, without writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakegate.checks import row_tests, run_audit
from lakegate.checks.questions import OrphanRows, TotalBeside
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.errors import EngineError
from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check
from lakegate.model.quarantine import FailingCount, RowTest
from lakegate.model.request import IngestRequest
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.ports import Engine, Narrator
from lakegate.wap.failing_files import with_files
from lakegate.wap.modes import resolve_mode
from lakegate.wap.plan import fit_batch
from lakegate.wap.quarantine import over_limit, quarantining, with_quarantined

FILES = "files"
"""What a trial's report has instead of a branch."""


class UntriedCheck(Value):
    """A check that can't be answered from files alone."""

    check: str
    reason: str


class ContractTrial(Value):
    """The outcome of trying a contract on files.

    Attributes:
        report: The audit's report; there's no branch, and nothing was written. As in an ingest, checks of severity
            ``quarantine`` say how many rows they'd quarantine, and the others judge the remaining rows.
        over_limit: Why an ingest would quarantine none of these rows, and reject the batch: they're too many.
        untried: Checks that need the lake.
    """

    contract: str
    report: AuditReport
    over_limit: str | None = None
    untried: tuple[UntriedCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether an ingest of the files would publish rows."""
        return self.report.passed


class TrialEngine(Engine, Protocol):
    """An engine that reads its rows from files."""

    def read_batch(self, batch: Batch, schema: Schema) -> None:
        """Read the rows of ``batch`` from now on, with the columns and types of ``schema``."""
        ...

    def exclude_failing(self, rows: AddedRows, tests: Sequence[RowTest]) -> FailingCount:
        """Exclude rows that fail one of ``tests`` from now on. Return how many rows there were, and how many fail."""
        ...

    def require_readable(self) -> None:
        """Raise a :class:`~lakegate.errors.SourceError` if a file or value can't be read."""
        ...


def try_contract(
    contract: str,
    request: IngestRequest,
    engine: TrialEngine,
    *,
    existing: Schema | None = None,
    masked: Sequence[str] = (),
    narrator: Narrator | None = None,
) -> ContractTrial:
    """Audit the files of a request by its contract, as an ingest would.

    Args:
        contract: The contract's file.
        existing: The table's columns; ``None`` for a new table.
        masked: Patterns of columns whose values aren't shown.

    Raises:
        SchemaError: When the files don't fit the contract or the table.
        SourceError: When a file or value can't be read.
        CheckError: When a check can't be evaluated.
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    batch, schema, _, _ = fit_batch(request, engine.source_schema, existing, masked=(*masked, *request.masked))
    engine.read_batch(batch, schema)
    checks, untried = _split_checks((*_of_key(request, schema), *request.checks), schema)
    rows = AddedRows(table=request.table, ref=FILES, after_snapshot_id=None, snapshot_id=0, masked=tuple(masked))

    def run_checks() -> AuditReport:
        report = run_audit(
            run_id="",
            rows=rows,
            schema=schema,
            added=AddedFiles(files=(), complete=False),
            checks=checks,
            engine=lambda: engine,
            metadata_location="",
            narrator=narrator,
            others=lambda _table: (),
            listed=batch.rows,
        )
        return with_files(
            report,
            checks,
            rows=rows,
            schema=schema,
            others=lambda _table: (),
            batch=batch,
            engine=engine,
            narrator=narrator,
        )

    too_many: str | None = None
    with _naming_unreadable(engine):
        report = first = run_checks()
        failing = quarantining(checks, report)
        if failing:  # as an ingest does it: lakegate.wap.quarantine
            found = engine.exclude_failing(rows, row_tests(failing, schema, rows, lambda _table: (), masked))
            too_many = over_limit(request.quarantine_limit, found.failing, first.rows)
            if too_many is None:
                counts = {name: number for (name, _), number in zip(failing, found.by_test, strict=True)}
                report = with_quarantined(run_checks(), first, counts)
    report = report.model_copy(update={"rows": first.rows})
    return ContractTrial(contract=contract, report=report, over_limit=too_many, untried=untried)


def _of_key(request: IngestRequest, schema: Schema) -> Iterator[Check]:
    """Yield checks for what an upsert refuses: keys with a NULL, and those that occur twice."""
    key = resolve_mode(request.mode, schema, request.table).key
    if key:
        wanted = [*(Check(kind="not_null", columns=(name,)) for name in key), Check(kind="unique", columns=key)]
        yield from (check for check in wanted if check not in request.checks)


@contextmanager
def _naming_unreadable(engine: TrialEngine) -> Iterator[None]:
    """If the engine fails in the body, raise the files' error if they're the reason: retrying won't help then."""
    try:
        yield
    except EngineError:
        engine.require_readable()
        raise


def _split_checks(checks: tuple[Check, ...], schema: Schema) -> tuple[list[Check], tuple[UntriedCheck, ...]]:
    """Return the checks that can be answered from the rows alone, and the others."""
    tried: list[Check] = []
    untried: list[UntriedCheck] = []
    for check, valid in zip(checks, validate_checks(checks, schema), strict=True):
        question = find_check(valid.kind).ask(valid, schema)
        if isinstance(question, (OrphanRows, TotalBeside)):
            untried.append(UntriedCheck(check=str(check), reason=f"it compares with the table {question.table}"))
        else:
            tried.append(valid)
    return tried, tuple(untried)
