"""From a rule's name and its arguments to checks; the one way both the parser and the builders go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from lakegate.audits.arguments import Syntax, plain
from lakegate.audits.registry import find_rule
from lakegate.audits.rule import Rule
from lakegate.errors import CheckError
from lakegate.model.checks import Check, Scope, Severity
from lakegate.model.schema import nearest

_COMMON = ("severity", "scope", "name")
_LOOKS_AT: dict[Scope, str] = {"batch": "the rows of the batch", "table": "the whole table"}


def make_checks(kind: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks that ``kind(*positional, **keywords)`` stands for.

    ``severity``, ``scope`` and ``name`` are understood for every rule. A name given to several checks at once
    (``not_null(a, b, name='keys')``) is completed with each one's columns.

    Raises:
        CheckError: When the rule is unknown or its arguments are wrong.

    Example:
        >>> [str(check) for check in make_checks("not_null", ("a", "b"), {"severity": "warn"})]
        ["not_null(a, severity='warn')", "not_null(b, severity='warn')"]
    """
    rule = find_rule(kind)
    common = {key: keywords[key] for key in _COMMON if keywords.get(key) is not None}
    checks = rule.build(positional, {key: value for key, value in keywords.items() if key not in _COMMON})
    severity, scope, label = _severity(rule, common), _scope(rule, common), _label(rule, common)
    return tuple(
        check.model_copy(
            update={
                "severity": severity,
                "scope": scope,
                "label": label if label is None or len(checks) == 1 else "_".join((label, *check.columns)),
            }
        )
        for check in checks
    )


def rebuild(check: Check) -> tuple[Check, ...]:
    """Return ``check`` as the parser would have made it, whoever made it.

    Raises:
        CheckError: As :func:`make_checks`.
    """
    # "batch" is what a check made by hand says when nobody thought of its scope.
    scope = None if check.scope == "batch" else check.scope
    common = {"severity": check.severity, "scope": scope, "name": check.label}
    return make_checks(check.kind, check.columns, {**check.arguments, **common})


def _syntax(rule: Rule) -> Syntax:
    return Syntax(rule.kind, rule.signature, rule.example)


def _severity(rule: Rule, common: Mapping[str, Any]) -> str:
    severity = plain(_syntax(rule), common.get("severity", "error"))
    known = get_args(Severity)
    if severity in known:
        return str(severity)
    close = nearest(str(severity), known)
    raise CheckError(
        f"{rule.kind}: there is no severity {severity!r}.",
        hint=(f"Did you mean '{close}'? " if close else "")
        + "Use severity='error' (a failure blocks the publish) or severity='warn' (it is only reported).",
        check=rule.kind,
    )


def _label(rule: Rule, common: Mapping[str, Any]) -> str | None:
    label = plain(_syntax(rule), common.get("name"))
    if label is None or (isinstance(label, str) and label.strip()):
        return label
    raise _syntax(rule).error(f"name={label!r} is not a text to call the check by.")


def _scope(rule: Rule, common: Mapping[str, Any]) -> str:
    scopes: tuple[Scope, ...] = getattr(rule, "scopes", ("batch",))
    scope = plain(_syntax(rule), common.get("scope", scopes[0]))
    if scope in scopes:
        return str(scope)
    looks_at = " or ".join(_LOOKS_AT[known] for known in scopes)
    raise CheckError(
        f"{rule.kind}: scope={scope!r} is not supported; it looks at {looks_at}.",
        hint="Leave scope out, or write " + " or ".join(f"scope='{known}'" for known in scopes) + ".",
        check=rule.kind,
    )
