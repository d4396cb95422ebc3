"""Checks of text: emptiness, length, case, patterns and well-known formats."""

from __future__ import annotations

from typing import Literal, Unpack

from lakegate.checks.columns import Family, QuotedColumn
from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.questions import FailingRows, start_of, wrong_type
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.sqltext import sql_string

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL = rf"\A[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL}){{0,126}}\z"
_BLANK = r"(?U)\A\s*\z"
_UUID = r"\A[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\z"
_LONGEST_LIKE = 1_000  # characters, because Java recurses for each
_CASES = {"lower": "lower({0})", "upper": "upper({0})"}


@check(example="not_empty_string(name)", each_column=True, parameter_aliases={"trim_whitespace": "trim"}, nans="–")
def not_empty_string(column: ColumnName, *, trim: bool = True, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is never an empty string.

    Text that is only whitespace (by Unicode's definition) counts as empty, unless ``trim=False``. NULL passes; add
    ``not_null`` to refuse it.

    Example:
        >>> str(not_empty_string("name"))
        'not_empty_string(name)'
    """
    text = _text(column)
    return FailingRows(f"{text} RLIKE {sql_string(_BLANK)}" if trim else f"{text} = ''")


@check(example="length_between(code, 2, 8)", parameter_aliases={"min_value": "min", "max_value": "max"}, nans="–")
def length_between(
    column: ColumnName, min: int | None = None, max: int | None = None, **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` has between ``min`` and ``max`` characters, either of which may be omitted.

    Characters are Unicode code points, so some emoji count as several. Trailing spaces count.

    Example:
        >>> str(length_between("code", 2, 8))
        'length_between(code, min=2, max=8)'
    """
    length = f"char_length({_text(column)})"
    terms = [f"{length} < {min}"] * (min is not None) + [f"{length} > {max}"] * (max is not None)
    return FailingRows(" OR ".join(terms))


@length_between.prepare
def _prepare_length(check: Check) -> Check:
    low, high = check.arguments.get("min"), check.arguments.get("max")
    if low is None and high is None:
        raise ValueError("it needs min, max or both.")
    for name, value in check.arguments.items():
        if not 0 <= value < 2**31:
            raise ValueError(f"{name}={value} isn't a number of characters.")
    if low is not None and high is not None and low > high:
        raise ValueError(f"min={low} is more than max={high}.")
    return check


@length_between.claim
def _claim_length(check: Check) -> str:
    low, high = check.arguments.get("min"), check.arguments.get("max")
    ends = (("at least", low), ("at most", high))
    parts = [f"{words} {end:,}" for words, end in ends if end is not None]
    return f"{check.columns[0]} has {' and '.join(parts)} characters"


@check(example="casing(code, 'upper')", nans="–")
def casing(column: ColumnName, case: Literal["lower", "upper"], **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` has ``case``-case letters only.

    That is, Spark's function ``lower`` or ``upper`` doesn't change it. Digits, punctuation and caseless letters pass.

    Example:
        >>> str(casing("code", "upper"))
        "casing(code, case='upper')"
    """
    text = _text(column)
    return FailingRows(f"{text} <> {_CASES[case].format(text)}")


@check(
    example="matches(code, r'^[A-Z]{3}$')", aliases=("match_regex",), parameter_aliases={"regex": "pattern"}, nans="–"
)
def matches(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` matches /``pattern``/.

    The pattern may match anywhere: write ``^…\z`` to match the whole text (``$`` also matches before a final line
    break). Only text columns have patterns. Write them as ``r'…'``.

    Patterns are Java's, as Spark's ``RLIKE`` reads them. ``\d``, ``\w``, ``\s`` and ``\b`` are ASCII-only, ``(?i)``
    ignores the case of ASCII letters and ``(?iu)`` that of all. A pattern that Java can't read ends the audit with an
    error that names the check (exit code 2). Nothing looks for slow patterns: ``(a+)+$`` can take forever on some
    texts, and a repeated group such as ``(a|b)*`` overflows Java's stack on very long ones. Write repetitions that can
    match a text in only one way (``^\w+( \w+)*$``, not ``^(\w+ ?)*$``), repeat classes rather than groups (``[ab]*``),
    and limit an audit's time with the setting ``audit.timeout_s``.

    Example:
        >>> str(matches("code", r"^[A-Z]{3}$"))
        "matches(code, pattern='^[A-Z]{3}$')"
    """
    found = audited(column)
    if found.type.family is not Family.TEXT:
        hint = f"Use in_range({found.name}, …), or sql('…') with a cast."
        raise wrong_type(found, "and only text can match a pattern.", hint)
    return FailingRows(f"NOT ({column} RLIKE {sql_string(pattern)})", by_user=True)


@matches.prepare
def with_usable_pattern(check: Check) -> Check:
    """Return the check if its pattern isn't an obvious mistake, whose syntax only Java can judge.

    Raises:
        ValueError: If it is; the message says why.
    """
    pattern = check.arguments["pattern"]
    if not pattern:
        raise ValueError("the pattern is empty.")
    if "\b" in pattern:
        raise ValueError(f"the pattern {pattern!r} contains a backspace; write r'…' so that \\b is a word boundary.")
    return check


@check(example="not_match_regex(comment, r'<script')", parameter_aliases={"regex": "pattern"}, nans="–")
def not_match_regex(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` doesn't match /``pattern``/ anywhere.

    Patterns are read as by ``match_regex``.

    Example:
        >>> str(not_match_regex("comment", r"<script"))
        "not_match_regex(comment, pattern='<script')"
    """
    return FailingRows(f"{_text(column)} RLIKE {sql_string(pattern)}", by_user=True)


not_match_regex.prepare(with_usable_pattern)


@check(example="match_like(code, 'AB-%')", parameter_aliases={"like_pattern": "pattern"}, nans="–")
def match_like(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` is LIKE ``pattern``.

    The whole text must match. ``%`` matches any text and ``_`` any character; escape them as ``\%`` and ``\_``. Case
    matters.

    Example:
        >>> str(match_like("code", "AB-%"))
        "match_like(code, pattern='AB-%')"
    """
    return FailingRows(f"NOT ({_text(column)} LIKE {sql_string(pattern)})", by_user=True)


@match_like.prepare
def _prepare_like(check: Check) -> Check:
    pattern = check.arguments["pattern"]
    if len(pattern) > _LONGEST_LIKE:
        raise ValueError(f"the pattern {start_of(pattern)!r} has more than {_LONGEST_LIKE:,} characters.")
    rest = pattern.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
    if "\\" in rest:
        raise ValueError(f"the pattern {pattern!r} has a backslash that isn't followed by %, _ or another backslash.")
    return check


@check(example="valid_email(contact)", each_column=True, nans="–")
def valid_email(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` looks like an e-mail address.

    It follows the rule for HTML's ``<input type="email">``: up to 64 ASCII characters, one ``@``, then labels of up to
    63 letters, digits and inner hyphens, separated by dots. No pattern can tell whether the address exists. Empty text
    fails.

    Example:
        >>> str(valid_email("contact"))
        'valid_email(contact)'
    """
    return FailingRows(f"NOT ({_text(column)} RLIKE {sql_string(EMAIL)})")


@check(example="valid_uuid(request_id)", each_column=True, nans="–")
def valid_uuid(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is a UUID: 32 hexadecimal digits in five groups, in either case.

    Columns of Iceberg's type ``uuid`` always pass. Braces and ``urn:uuid:`` fail.

    Example:
        >>> str(valid_uuid("request_id"))
        'valid_uuid(request_id)'
    """
    return FailingRows(f"NOT ({_text(column)} RLIKE {sql_string(_UUID)})")


def _text(column: str) -> QuotedColumn:
    found = audited(column)
    if found.type.family is not Family.TEXT:
        raise wrong_type(found, "not text.", "Use it on text columns.")
    return found
