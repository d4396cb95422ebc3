"""From the name of a rule to the rule."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from lakegate.audits.rule import Rule
from lakegate.errors import CheckError
from lakegate.model.schema import nearest

GROUP = "lakegate.checks"
"""Entry point group in which other packages offer rules."""

BUILT_IN = (
    EntryPoint("not_null", "lakegate.audits.rules.not_null:RULE", GROUP),
    EntryPoint("unique", "lakegate.audits.rules.unique:RULE", GROUP),
    EntryPoint("relationships", "lakegate.audits.rules.relationships:RULE", GROUP),
    EntryPoint("in_range", "lakegate.audits.rules.in_range:RULE", GROUP),
    EntryPoint("accepted_values", "lakegate.audits.rules.accepted_values:RULE", GROUP),
    EntryPoint("matches", "lakegate.audits.rules.matches:RULE", GROUP),
    EntryPoint("row_count", "lakegate.audits.rules.row_count:RULE", GROUP),
    EntryPoint("sql", "lakegate.audits.rules.sql:RULE", GROUP),
)
"""The rules that come with lakegate. They cannot be replaced by another package's."""


def find_rule(kind: str) -> Rule:
    """Return the rule called ``kind``. Other packages are looked at only when it is none of ours.

    Raises:
        CheckError: When there is no such rule, or another package's cannot be loaded.

    Example:
        >>> find_rule("in_range").signature
        'in_range(column, min, max, inclusive=True)'
    """
    own = next((point for point in BUILT_IN if point.name == kind), None)
    return _load(own) if own else _load_foreign(kind)


def known_rules() -> tuple[str, ...]:
    """Return the names of all rules, ours first."""
    own = [point.name for point in BUILT_IN]
    foreign = sorted(entry_points(group=GROUP).names - set(own))
    return (*own, *foreign)


def _load_foreign(kind: str) -> Rule:
    point = next(iter(entry_points(group=GROUP, name=kind)), None)
    if point is not None:
        return _load(point)
    known = known_rules()
    close = nearest(kind, known)
    raise CheckError(
        f"There is no check called '{kind}'.",
        hint=(f"Did you mean '{close}'? " if close else "") + f"Known checks: {', '.join(known)}.",
        check=kind,
    )


@cache
def _load(point: EntryPoint) -> Rule:
    try:
        rule = point.load()
    except Exception as error:
        raise CheckError(
            f"The check '{point.name}' cannot be loaded from {point.value}: {error}",
            hint="Repair or uninstall the package that offers it.",
            check=point.name,
        ) from error
    if not isinstance(rule, Rule):
        raise CheckError(
            f"The check '{point.name}' cannot be used: {point.value} is not a rule.",
            hint="The entry point must name an object that satisfies lakegate.audits.rule.Rule.",
            check=point.name,
        )
    return rule
