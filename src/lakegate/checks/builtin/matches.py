from __future__ import annotations

from typing import Unpack

from lakegate.checks.columns import Family
from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.patterns import longest_text
from lakegate.checks.questions import CheckProblem, FailingRows
from lakegate.checks.regex import RegexError, java_pattern
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.sqltext import sql_string


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
        raise CheckProblem(
            f"column '{found.name}' is of type {found.type.text}, and only text can match a pattern.",
            f"Use in_range({found.name}, …), or sql('…') with a cast.",
        )
    predicate = f"NOT ({column} RLIKE {sql_string(java_pattern(pattern))})"
    return FailingRows(predicate, by_user=True, longest_text=longest_text(pattern), text=found)


@matches.prepare
def with_usable_pattern(check: Check) -> Check:
    """Return ``check`` if its pattern can be used.

    Raises:
        ValueError: With what's wrong with the pattern.
    """
    pattern = check.arguments["pattern"]
    try:
        java_pattern(pattern)
    except RegexError as error:
        raise ValueError(f"the pattern {pattern!r} {error}.") from None
    return check
