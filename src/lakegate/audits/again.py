"""Part of an audit again: the checks whose other tables moved since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lakegate.audits.audit import run_audit
from lakegate.audits.lookups import Others
from lakegate.audits.references import Schemas
from lakegate.audits.validation import validate_checks
from lakegate.model.checks import AuditReport, Check
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows
from lakegate.protocols import Engine, Narrator


def rerun(
    report: AuditReport,
    checks: Sequence[Check],
    moved: Collection[str],
    *,
    rows: AddedRows,
    schema: Schema,
    added: AddedFiles,
    engine: Callable[[], Engine],
    others: Others,
    at: str,
    schemas: Schemas | None = None,
    narrator: Narrator | None = None,
) -> AuditReport:
    """Answer again the checks that depend on tables that moved, and keep the other results.

    Args:
        report: Of the same rows, by :func:`~lakegate.audits.audit.run_audit` or this function.
        checks: Those that the report answers, all of them and in its order.
        moved: Names of the tables that changed since ``report.at``.
        rows: As for the report.
        schema: As for the report.
        added: As for the report.
        engine: Called only when something has to be asked.
        others: Gives where to read other tables now.
        at: Hash of the commit they are read at now.
        schemas: Gives their schemas now.
        narrator: Where to tell of it.

    Returns:
        A report that holds at ``at``. Without moved tables among those it reads, nothing is asked.

    Raises:
        LakegateError: As :func:`~lakegate.audits.audit.run_audit`.
        ValueError: When ``checks`` are not those of the report.
    """
    asked = dict(enumerate(zip(validate_checks(checks, schema), report.results, strict=True)))
    stale = {index: check for index, (check, result) in asked.items() if set(result.reads) & set(moved)}
    fresh = run_audit(
        run_id=report.run_id,
        rows=rows,
        schema=schema,
        added=added,
        checks=tuple(stale.values()),
        engine=engine,
        metadata_location=report.metadata_location,
        narrator=narrator,
        others=others,
        at=at,
        schemas=schemas,
    )
    results = {index: result for index, (_, result) in asked.items()}
    for index, result in zip(stale, fresh.results, strict=True):
        results[index] = result.model_copy(update={"name": results[index].name})
    return report.model_copy(
        update={
            "results": tuple(results.values()),
            "seconds": report.seconds + fresh.seconds,
            "at": at if report.reads else report.at,
        }
    )
