"""A contract tried on files: what an ingest of them would find, with nothing written anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from lakegate.checks import run_audit
from lakegate.checks.questions import OrphanRows, TotalBeside
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.contracts.reader import LoadedContract
from lakegate.errors import CheckError, LakegateError, RetryableError
from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check, CheckResult
from lakegate.model.refs import Ref
from lakegate.model.request import ContractTerms
from lakegate.model.run import Run, RunStatus
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.ports import Engine, Narrator
from lakegate.wap.context import Context
from lakegate.wap.history import part_of, snapshots_in
from lakegate.wap.plan import schema_of_new_table
from lakegate.wap.published import audit_state
from lakegate.wap.review import audit_branch

FILES = "files"
"""What a report says instead of a branch."""


class UntriedCheck(Value):
    """A check that files alone can't answer."""

    check: str
    reason: str


class ContractTrial(Value):
    """What a contract finds in files.

    Attributes:
        report: The audit's report; there's no branch, and nothing was written.
        untried: Checks that need the lake.
    """

    contract: str
    report: AuditReport
    untried: tuple[UntriedCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no check failed that rejects a batch. Rows that are set aside don't."""
        return not rejecting(self.report)


class ContractOutcome(Value):
    """What a contract would have made of a batch that came earlier.

    Attributes:
        before: How the run ended: ``published``, ``rejected`` …
        rows: Rows that were looked at; 0 if none could be.
        failures: Checks of the contract that fail, warnings among them.
        added: Those of them that the run's own audit didn't ask.
        reason: Why the batch couldn't be looked at; ``None`` if it could.
    """

    run_id: str
    at: datetime
    before: RunStatus
    rows: int = 0
    failures: tuple[CheckResult, ...] = ()
    added: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def rejected(self) -> bool | None:
        """Whether the contract would have rejected it; ``None`` if that's unknown."""
        if self.reason is not None:
            return None
        return any(result.severity == "error" for result in self.failures)


def rejecting(report: AuditReport) -> tuple[CheckResult, ...]:
    """Return the results that reject a batch as a whole."""
    return tuple(result for result in report.failures if result.severity == "error")


def outcome_of(context: Context, contract: LoadedContract, run: Run) -> ContractOutcome:
    """Audit the rows that a run added by another contract than then.

    Args:
        run: A published run, or one whose branch is still there.

    Returns:
        The outcome; what can't be looked at any more is a reason in it.

    Raises:
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    known = ContractOutcome(run_id=run.run_id, at=run.started_at, before=run.status)
    try:
        report = _report(context, contract, run)
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
            "added": tuple(result.check for result in failed if result.check not in asked),
        }
    )


def _report(context: Context, contract: LoadedContract, run: Run) -> AuditReport:
    table = contract.table
    if run.publication is None:
        return audit_branch(context, table, run.branch, checks=contract.checks, configured=lambda _table: ())
    commit = next(iter(context.catalog.history(run.publication.commit)))
    ref = Ref(name=commit.hash, hash=commit.hash, kind="detached")
    since = None if commit.parent is None else Ref(name=commit.parent, hash=commit.parent, kind="detached")
    own = snapshots_in(part_of(commit, run.run_id))
    return audit_state(context, table, ref, contract.checks, since=since, own=own)


class EngineOfFiles(Engine, Protocol):
    """An engine whose rows are those of files."""

    def look_at(self, batch: Batch, schema: Schema) -> None:
        """From now on, the rows are those of ``batch``, in the columns and types of ``schema``."""
        ...


def try_contract(
    contract: LoadedContract,
    batch: Batch,
    engine: EngineOfFiles,
    *,
    masked: Sequence[str] = (),
    narrator: Narrator | None = None,
) -> ContractTrial:
    """Audit files by a contract.

    Args:
        masked: Patterns of columns whose values aren't shown.

    Raises:
        SchemaError: When the files don't have the contract's columns.
        CheckError: When a check can't be asked of them.
        LakegateError: As the engine raises.
    """
    terms: ContractTerms = contract.terms
    batch = batch.named_like(tuple(column.name for column in terms.columns))
    schema = schema_of_new_table(contract.table, batch, engine.source_schema(batch), terms, contract.settings.mode)
    engine.look_at(batch, schema)
    checks, untried = _divided(contract.checks, schema)
    report = run_audit(
        run_id="",
        rows=AddedRows(table=contract.table, ref=FILES, after_snapshot_id=None, snapshot_id=0, masked=tuple(masked)),
        schema=schema,
        added=AddedFiles(files=(), complete=False),
        checks=checks,
        engine=lambda: engine,
        metadata_location="",
        narrator=narrator,
        others=lambda _table: (),
    )
    return ContractTrial(contract=contract.file, report=report, untried=untried)


def _divided(checks: tuple[Check, ...], schema: Schema) -> tuple[list[Check], tuple[UntriedCheck, ...]]:
    """Return the checks that rows alone answer, and the others."""
    tried: list[Check] = []
    untried: list[UntriedCheck] = []
    errors: list[CheckError] = []
    for check in checks:
        try:
            (valid,) = validate_checks((check,), schema)
            question = find_check(valid.kind).ask(valid, schema)
        except CheckError as error:
            errors.append(error)
            continue
        if isinstance(question, (OrphanRows, TotalBeside)):
            untried.append(UntriedCheck(check=str(check), reason=f"it compares with the table {question.table}"))
        else:
            tried.append(valid)
    if errors:
        validate_checks(checks, schema)  # one error that names all
        raise errors[0]
    return tried, tuple(untried)
