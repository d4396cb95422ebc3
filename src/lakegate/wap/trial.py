"""A contract tried on files: what an ingest of them would find, with nothing written anywhere."""

from __future__ import annotations

from typing import Protocol

from lakegate.checks import run_audit
from lakegate.checks.questions import OrphanRows
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.contracts.reader import LoadedContract
from lakegate.errors import CheckError
from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check
from lakegate.model.request import ContractTerms
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.ports import Engine, Narrator
from lakegate.wap.plan import schema_of_new_table

FILES = "files"
"""What a report says instead of a branch."""


class UntriedCheck(Value):
    """A check that files alone can't answer.

    Attributes:
        check: Its text.
        reason: Why not.
    """

    check: str
    reason: str


class ContractTrial(Value):
    """What a contract finds in files.

    Attributes:
        contract: The contract's file.
        report: The audit's report; there's no branch, and nothing was written.
        untried: Checks that need the lake.
    """

    contract: str
    report: AuditReport
    untried: tuple[UntriedCheck, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no check failed that blocks a publish."""
        return self.report.passed


class EngineOfFiles(Engine, Protocol):
    """An engine whose rows are those of files."""

    def look_at(self, batch: Batch, schema: Schema) -> None:
        """From now on, the rows are those of ``batch``, in the columns and types of ``schema``."""
        ...


def try_contract(
    contract: LoadedContract, batch: Batch, engine: EngineOfFiles, *, narrator: Narrator | None = None
) -> ContractTrial:
    """Audit files by a contract.

    Args:
        contract: The contract.
        batch: The files.
        engine: Reads them.
        narrator: Where to report progress.

    Raises:
        SchemaError: When the files don't have the contract's columns.
        CheckError: When a check can't be asked of them.
        LakegateError: As the engine raises.
    """
    terms: ContractTerms = contract.terms
    batch = batch.named_like(tuple(column.name for column in terms.columns))
    schema = schema_of_new_table(contract.table, batch, engine.source_schema(batch), terms)
    engine.look_at(batch, schema)
    checks, untried = _divided(contract.checks, schema)
    report = run_audit(
        run_id="",
        rows=AddedRows(table=contract.table, ref=FILES, after_snapshot_id=None, snapshot_id=0),
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
        if isinstance(question, OrphanRows):
            untried.append(UntriedCheck(check=str(check), reason=f"it compares with the table {question.table}"))
        else:
            tried.append(valid)
    if errors:
        validate_checks(checks, schema)  # one error that names all
        raise errors[0]
    return tried, tuple(untried)
