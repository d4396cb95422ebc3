"""Try a contract on files: report what an ingest of them would find, without writing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from lakegate.checks import row_tests, run_audit
from lakegate.checks.questions import OrphanRows, TotalBeside, as_of
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.contracts.store import LoadedContract
from lakegate.errors import EngineError, LakegateError, RetryableError
from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import FileCount, RowTest
from lakegate.model.refs import Ref
from lakegate.model.request import ContractTerms
from lakegate.model.run import Publication, Run, RunStatus, StagedTable
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.ports import Engine, Narrator
from lakegate.wap.audit import added_rows, as_row_tests, audit, audit_state, resolve_checks
from lakegate.wap.context import Context
from lakegate.wap.history import part_of, snapshots_in
from lakegate.wap.plan import contract_check, schema_of_new_table
from lakegate.wap.quarantine import MOST_ROUNDS, over_limit, quarantining, with_quarantined
from lakegate.wap.review import audit_branch
from lakegate.wap.stage import hides_values, hiding_values

FILES = "files"
"""What a trial's report has instead of a branch."""
_COUNTING = "rows to quarantine were counted"


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


class ContractOutcome(Value):
    """How an earlier batch would have fared under a contract.

    Attributes:
        before: How the run ended: ``published``, ``rejected`` …
        rows: Number of rows audited; 0 if the batch couldn't be audited.
        failures: Checks of the contract that fail, including warnings.
        added: Those of ``failures`` that the run's own audit didn't check.
        over_limit: Why the contract would have quarantined too many rows.
        reason: Why the batch couldn't be audited; ``None`` if it could.
    """

    run_id: str
    at: datetime
    before: RunStatus
    rows: int = 0
    failures: tuple[CheckResult, ...] = ()
    added: tuple[str, ...] = ()
    over_limit: str | None = None
    reason: str | None = None

    @property
    def rejected(self) -> bool | None:
        """Whether the contract would have rejected it; ``None`` if that's unknown."""
        if self.reason is not None:
            return None
        return self.over_limit is not None or any(result.severity == "error" for result in self.failures)


def outcome_of(context: Context, contract: LoadedContract, run: Run) -> ContractOutcome:
    """Audit the rows that a run added against ``contract``, as of the time of the run's own audit.

    Args:
        run: A published run, or one whose branch still exists.

    Returns:
        The outcome. If the rows can't be audited any more, it has a ``reason``.

    Raises:
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    known = ContractOutcome(run_id=run.run_id, at=run.started_at, before=run.status)
    try:
        with as_of(_audited_at(run)):
            report, too_many = _report(context, contract, run)
    except RetryableError:
        raise
    except LakegateError as error:
        return known.model_copy(update={"reason": error.message})
    asked = {result.check for one in run.reports if one.table == str(contract.table) for result in one.results}
    failed = tuple(result for result in report.results if result.verdict == "fail")
    return known.model_copy(
        update={
            "rows": report.rows,
            "failures": failed,
            "over_limit": too_many,
            "added": tuple(result.check for result in failed if result.check not in asked),
        }
    )


def _audited_at(run: Run) -> datetime:
    audits = (step.started_at for step in reversed(run.steps) if step.name == "audit")
    return next(audits, run.finished_at or run.started_at)


def _report(context: Context, contract: LoadedContract, run: Run) -> tuple[AuditReport, str | None]:
    """Audit a run's rows; return the report, and why too many rows would be quarantined, or ``None``."""
    columns = contract_check(contract.terms)
    if run.publication is None:
        context.catalog.get_ref(run.branch)  # raises when it's gone
        staged = run.staged
    else:
        staged = _as_published(context, run, run.publication)
    own = next((one for one in staged if one.table == contract.table), None)
    if own is None:
        checks = contract.checks if columns is None else (*contract.checks, columns)
        return _audit_by_catalog(context, contract.table, checks, run), None
    if columns is not None:
        # An ingest stops here if the columns don't match: the other checks may not even be valid.
        report = audit(context, own, (columns,), beside=staged)
        if not report.passed:
            return report, None
    replaces = () if run.request is None else run.request.replaces
    checks = resolve_checks(context, own, contract.checks, staged)
    report = audit(context, own, checks, beside=staged, replaces=replaces)
    limit, failing = contract.settings.quarantine_limit, quarantining(checks, report)
    if limit is None or not failing:
        return report, None
    tests = as_row_tests(context, own, failing, replaces=replaces, masked=context.masked)
    with hiding_values(_COUNTING, hides=hides_values(checks, context.masked)):
        found = context.engine().failing_files(added_rows(own), tests)
    return report, over_limit(limit, sum(file.failing for file in found.values()), report.rows)


def _as_published(context: Context, run: Run, publication: Publication) -> tuple[StagedTable, ...]:
    """Return what a run wrote, as published in its commit; nothing if that can't be reconstructed."""
    commit = next(iter(context.catalog.history(publication.commit)))
    if commit.parent is None:
        return ()
    found = []
    for one in run.staged:
        at = Ref(name=run.target, hash=commit.hash)
        pointer = context.catalog.get_table(one.table, at)
        changed: dict[str, object] = {"branch": run.target, "base": commit.parent, "head": commit.hash}
        if pointer is not None and one.keeps_rows and one.snapshot_ids:
            # A rebase keeps snapshot ids. The commit may hold other snapshots too, of runs that share it.
            parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in context.reader.snapshots(pointer)}
            if not parents.keys() >= set(one.snapshot_ids):
                return ()
            pointer = pointer.model_copy(update={"snapshot_id": one.snapshot_ids[-1]})
            changed["parent_snapshot_id"] = parents[one.snapshot_ids[0]]
        if pointer is not None:
            found.append(one.model_copy(update={**changed, "pointer": pointer}))
    return tuple(found)


def _audit_by_catalog(context: Context, table: TableIdentifier, checks: Sequence[Check], run: Run) -> AuditReport:
    """Audit a run that the journal doesn't have in full, by what the catalog says it wrote."""
    if run.publication is None:
        return audit_branch(context, table, run.branch, checks=checks, configured=lambda _table: ())
    commit = next(iter(context.catalog.history(run.publication.commit)))
    ref = Ref.detached(commit.hash)
    since = None if commit.parent is None else Ref.detached(commit.parent)
    own = snapshots_in(part_of(commit, run.run_id))
    return audit_state(context, table, ref, checks, since=since, own=own)


class TrialEngine(Engine, Protocol):
    """An engine that reads its rows from files."""

    def read_batch(self, batch: Batch, schema: Schema) -> None:
        """Read the rows of ``batch`` from now on, with the columns and types of ``schema``."""
        ...

    def exclude_failing(self, rows: AddedRows, tests: Sequence[RowTest]) -> FileCount:
        """Exclude rows that fail one of ``tests`` from now on. Return how many rows there were, and how many fail."""
        ...

    def require_readable(self) -> None:
        """Raise a :class:`~lakegate.errors.SourceError` if a file or value can't be read."""
        ...


def try_contract(
    contract: LoadedContract,
    batch: Batch,
    engine: TrialEngine,
    *,
    masked: Sequence[str] = (),
    narrator: Narrator | None = None,
) -> ContractTrial:
    """Audit files against a contract.

    Args:
        masked: Patterns of columns whose values aren't shown.

    Raises:
        SourceError: When a file or value can't be read.
        CheckError: When a check can't be evaluated.
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    terms: ContractTerms = contract.terms
    batch = batch.named_like(tuple(column.name for column in terms.columns))
    schema = schema_of_new_table(contract.table, batch, engine.source_schema(batch), terms, contract.settings.mode)
    engine.read_batch(batch, schema)
    checks, untried = _split_checks(contract.checks, schema)
    rows = AddedRows(table=contract.table, ref=FILES, after_snapshot_id=None, snapshot_id=0, masked=tuple(masked))

    def run_checks() -> AuditReport:
        return run_audit(
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

    counts: Counter[str] = Counter()
    too_many: str | None = None
    quarantined = 0
    hides = hides_values(checks, masked)
    with _naming_unreadable(engine, hides=hides):
        report = first = run_checks()
        for _ in range(MOST_ROUNDS):  # as an ingest does it: lakegate.wap.quarantine
            failing = quarantining(checks, report)
            if not failing:
                break
            with hiding_values(_COUNTING, hides=hides):
                found = engine.exclude_failing(rows, row_tests(failing, schema, rows, lambda _table: (), masked))
            quarantined += found.failing
            too_many = over_limit(contract.settings.quarantine_limit, quarantined, first.rows)
            if too_many is not None:
                break
            counts.update({name: number for (name, _), number in zip(failing, found.by_test, strict=True)})
            report = run_checks()
    report = with_quarantined(report, first, counts) if quarantined else report
    report = report.model_copy(update={"rows": first.rows})
    return ContractTrial(contract=contract.file, report=report, over_limit=too_many, untried=untried)


@contextmanager
def _naming_unreadable(engine: TrialEngine, *, hides: bool) -> Iterator[None]:
    """If the engine fails in the body, raise the files' error if they're the reason: retrying won't help then."""
    try:
        yield
    except EngineError:
        with hiding_values("the files were read", hides=hides):
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
