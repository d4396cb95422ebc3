"""Checks of text: emptiness, length, case, patterns and well-known formats."""

from __future__ import annotations

from typing import Literal, Unpack

from lakegate.checks.columns import Family, QuotedColumn
from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.json_schemas import FORMATS, json_predicate, read_schema
from lakegate.checks.patterns import like_pattern, linear_like, longest_text, problem
from lakegate.checks.questions import FailingRows, start_of, wrong_type
from lakegate.checks.regex import RegexError, java_pattern
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.sqltext import sql_string

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL = rf"\A[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL}){{0,126}}\z"
_BLANK = r"(?U)\A\s*\z"
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
    return FailingRows(f"{text} RLIKE {sql_string(_BLANK)}", text=text) if trim else FailingRows(f"{text} = ''")


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

    The pattern may match anywhere: write ``^…$`` to match the whole text (``$`` also matches before a final line feed,
    ``\z`` doesn't). Only text columns have patterns. Write them as ``r'…'``.

    A pattern means the same in Java (which Spark uses) and in Python's ``re``: ``\d``, ``\w``, ``\s`` and ``\b`` are
    ASCII-only (``re.ASCII``), and ``.`` matches anything but a line feed. Syntax that only one of them has, or that
    they read differently, is refused before anything is written. The error says where it is and what to write instead:
    ``\p{L}``, ``\h``, ``\Q…\E``, ``\Z``, named groups, ``[`` or ``&&`` within ``[ ]``, flags other than ``i`` and
    ``s``, ``é`` with the flag ``i``, and ``(?<=…)`` of varying length. For Java-only syntax, use ``sql('NOT … RLIKE
    …')``. Patterns that can take forever, such as ``(a+)+$``, are refused, too. Write repetitions that can match a text
    in only one way: ``^\w+( \w+)*$`` instead of ``^(\w+ ?)*$``.

    Some patterns are only slow on long texts, so they have a length limit. Where the time grows with the square of the
    length (``\s+$``, ``.*foo.*``, ``^[^@]+@[^@]+\.[^@]+$``), the limit is 10,000 characters; with its cube
    (``.*.*x``), 400; with its fourth power, 120. Beyond that, the pattern is refused. For a repeated group with varying
    content, such as ``(a|b)*`` or ``(,[a-z]+)*``, Java recurses on each repetition, and a stack overflow would kill
    Spark. Their limit is 800 characters, halved for each nested group. A longer text in the column ends the audit with
    an error (exit code 2), which is neither a pass nor a failure. Usually the pattern can be written without a limit:
    start with ``^``, repeat a character class (``[ab]*``), and let adjacent repetitions share no character
    (``^[^,]*,[^,]*x``, not ``.*,.*x``).

    The same applies to patterns in predicates such as ``sql('… RLIKE …')``, including those of ``LIKE``, ``split``,
    ``str_to_map``, ``parse_url`` and all ``regexp`` functions. Every text in the columns that the predicate names then
    has the limit. Write each pattern as one text, without the flag ``x``. Nothing is known about a pattern that comes
    from a column. It's only tried on texts of up to 120 characters and can still take forever, so only let people you
    trust write such a column. ``custom_sql`` can't limit texts, so it refuses patterns with a limit below 10,000
    characters.

    Example:
        >>> str(matches("code", r"^[A-Z]{3}$"))
        "matches(code, pattern='^[A-Z]{3}$')"
    """
    found = audited(column)
    if found.type.family is not Family.TEXT:
        hint = f"Use in_range({found.name}, …), or sql('…') with a cast."
        raise wrong_type(found, "and only text can match a pattern.", hint)
    predicate = f"NOT ({column} RLIKE {sql_string(java_pattern(pattern))})"
    return FailingRows(predicate, by_user=True, longest_text=longest_text(pattern), text=found)


@matches.prepare
def with_usable_pattern(check: Check) -> Check:
    """Require that a check's pattern can be used, and return the check.

    Raises:
        ValueError: If it can't; the message says why.
    """
    pattern = check.arguments["pattern"]
    try:
        java_pattern(pattern)
    except RegexError as error:
        raise ValueError(f"the pattern {pattern!r} {error}.") from None
    return check


@check(example="not_match_regex(comment, r'<script')", parameter_aliases={"regex": "pattern"}, nans="–")
def not_match_regex(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` doesn't match /``pattern``/ anywhere.

    Patterns have the syntax and limits of ``match_regex``.

    Example:
        >>> str(not_match_regex("comment", r"<script"))
        "not_match_regex(comment, pattern='<script')"
    """
    predicate = f"{_text(column)} RLIKE {sql_string(java_pattern(pattern))}"
    return FailingRows(predicate, by_user=True, longest_text=longest_text(pattern), text=audited(column))


not_match_regex.prepare(with_usable_pattern)


@check(example="match_like(code, 'AB-%')", parameter_aliases={"like_pattern": "pattern"}, nans="–")
def match_like(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` is LIKE ``pattern``.

    The whole text must match. ``%`` matches any text and ``_`` any character; escape them as ``\%`` and ``\_``. Case
    matters. Unlike ``sql('… LIKE …')``, patterns with many ``%`` aren't slow.

    Example:
        >>> str(match_like("code", "AB-%"))
        "match_like(code, pattern='AB-%')"
    """
    is_quick = longest_text(like_pattern(pattern)) is None and problem(like_pattern(pattern)) is None
    test = f"LIKE {sql_string(pattern)}" if is_quick else f"RLIKE {sql_string(linear_like(pattern))}"
    return FailingRows(f"NOT ({_text(column)} {test})", by_user=True)


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
    return FailingRows(f"NOT ({_text(column)} RLIKE {sql_string(EMAIL)})", text=audited(column))


@check(example="valid_uuid(request_id)", each_column=True, nans="–")
def valid_uuid(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is a UUID: 32 hexadecimal digits in five groups, in either case.

    Columns of Iceberg's type ``uuid`` always pass. Braces and ``urn:uuid:`` fail.

    Example:
        >>> str(valid_uuid("request_id"))
        'valid_uuid(request_id)'
    """
    return FailingRows(f"NOT ({_text(column)} RLIKE {sql_string(FORMATS['uuid'])})", text=audited(column))


@check(example="""json_schema(payload, '{"type": "object", "required": ["id"]}')""", nans="–",
       aliases=("has_valid_json_schema",), parameter_aliases={"json_schema": "schema"})  # fmt: skip
def json_schema(column: ColumnName, schema: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` is JSON that matches a JSON Schema.

    ``schema`` is the schema as JSON text. Invalid JSON fails, and so do objects with duplicate names; NULL passes.
    Supported are ``type``, ``enum`` and ``const`` of plain values, ``minimum`` and ``maximum``
    (also exclusive), ``minLength``, ``maxLength``, ``pattern``, ``format`` (``date``, ``date-time`` and ``uuid``; it
    is enforced), ``items``, ``minItems``, ``maxItems``, ``properties``, ``required``, ``additionalProperties``,
    ``minProperties``, ``maxProperties``, ``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``/``then``/``else``, and
    non-recursive ``$ref`` within the schema. Any other keyword is refused rather than ignored. Numbers are compared as
    doubles. Patterns have the syntax of ``match_regex``, except that ``$`` only matches at the very end. Leap seconds
    (``23:59:60``) aren't valid in a ``date-time``. Spark evaluates the check in SQL, with its type ``VARIANT``.

    Example:
        >>> str(json_schema("payload", '{"type": "object"}'))
        'json_schema(payload, schema=\'{"type": "object"}\')'
    """
    predicate, longest = json_predicate(read_schema(schema), _text(column))
    return FailingRows(predicate, by_user=True, longest_text=longest, text=audited(column))


@json_schema.prepare
def _prepare_json(check: Check) -> Check:
    json_predicate(read_schema(check.arguments["schema"]), "c")
    return check


@json_schema.claim
def _claim_json(check: Check) -> str:
    return f"{check.columns[0]} is JSON that matches its schema"


def _text(column: str) -> QuotedColumn:
    found = audited(column)
    if found.type.family is not Family.TEXT:
        raise wrong_type(found, "not text.", "Use it on text columns.")
    return found
