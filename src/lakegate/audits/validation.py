"""Checks against a schema, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.audits.make import rebuild
from lakegate.audits.references import Schemas, require_reference
from lakegate.audits.registry import find_rule
from lakegate.audits.rule import OrphanRows
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.schema import Schema


def validate_checks(checks: Sequence[Check], schema: Schema, schemas: Schemas | None = None) -> tuple[Check, ...]:
    """Return the checks with their columns spelled as ``schema`` has them, in order.

    Args:
        checks: From the parser, the builders, or made by hand.
        schema: Of the table as it will be, or of the batch when the table is created by it.
        schemas: Gives the schemas of other tables that checks compare with (the table itself may be one of them).
            Without it, columns that are missing there are found when the audit reads them.

    Raises:
        CheckError: Naming all checks that cannot be asked of this schema, not only the first.
    """
    valid: list[Check] = []
    errors: list[CheckError] = []
    for check in checks:
        try:
            valid += [_valid(made, schema, schemas) for made in rebuild(check)]
        except CheckError as error:
            errors.append(error)
    if errors:
        raise _united(errors)
    return tuple(valid)


def describe(check: Check) -> str:
    """Return what a check claims in one sentence, without a full stop.

    Raises:
        CheckError: When there is no such rule.

    Example:
        >>> describe(Check(kind="not_null", columns=("passenger_count",)))
        'passenger_count is never NULL'
    """
    return find_rule(check.kind).describe(check)


def _valid(check: Check, schema: Schema, schemas: Schemas | None) -> Check:
    rule = find_rule(check.kind)
    valid = rule.validate(check, schema)
    if schemas is not None:
        question = rule.question(valid, schema)
        if isinstance(question, OrphanRows):
            require_reference(valid, question, schema, schemas)
    return valid


def _united(errors: Sequence[CheckError]) -> CheckError:
    if len(errors) == 1:
        return errors[0]
    problems = "".join(f"\n- {error.message}" for error in errors)
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    return CheckError(
        f"{len(errors)} checks cannot be used:{problems}",
        hint="\n".join(hints),
        checks=[error.context.get("check") for error in errors],
    )
