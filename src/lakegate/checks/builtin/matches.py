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

    The pattern is *searched*: write ``^…$`` to match the whole text (``$`` also matches before a final line feed,
    ``\z`` doesn't). For columns of text only. Write patterns as ``r'…'``.

    A pattern has one meaning, in Spark's Java and in Python's ``re``: ``\d``, ``\w``, ``\s`` and ``\b`` know ASCII only
    (``re.ASCII``), and ``.`` is all but a line feed. What only one of the two knows, or takes for something else, is
    refused before anything is written, with its place and what to write instead: ``\p{L}``, ``\h``, ``\Q…\E``, ``\Z``,
    named groups, ``[`` or ``&&`` within ``[ ]``, flags but ``i`` and ``s``, ``é`` with the flag ``i``, and ``(?<=…)``
    of several lengths. For what only Java has, write ``sql('NOT … RLIKE …')``. Refused, too, is a pattern that can take
    forever, such as ``(a+)+$``: write each repetition so that it can match a text in one way only, ``^\w+( \w+)*$``
    instead of ``^(\w+ ?)*$``.

    Others only get slow on long texts. ``\s+$``, ``.*foo.*`` and ``^[^@]+@[^@]+\.[^@]+$`` take time by the square of a
    text's length, ``.*.*x`` by its cube. They're tried on texts up to 10,000 characters (square), 400 (cube) or 120
    (fourth power). Of a repeated group whose rounds can differ, ``(a|b)*`` or ``(,[a-z]+)*``, Java keeps each round on
    its stack, and Spark dies of one that overflows: they're tried on texts up to 800 characters (half of that with a
    group in the group, and so on). A longer text in the column ends the audit with an error (exit code 2), neither a
    pass nor a failure. Beyond the fourth power a pattern is refused. Usually there is one that has no such limit: begin
    with ``^``, repeat a class, ``[ab]*``, and let repetitions side by side share no character, ``^[^,]*,[^,]*x`` not
    ``.*,.*x``.

    The same holds for patterns in predicates, ``sql('… RLIKE …')``, and every text of the columns that the predicate
    names: for those of ``LIKE``, ``split``, ``str_to_map``, ``parse_url`` and all ``regexp`` functions, too. Write each
    as one text, without the flag ``x``. Of one that comes from a column nothing is known: it's tried on texts up to
    120 characters, and can still take forever, so let nobody write such a column whom you don't trust. In
    ``custom_sql`` nothing keeps long texts away, and a pattern for less than 10,000 characters is refused.

    Example:
        >>> str(matches("code", r"^[A-Z]{3}$"))
        "matches(code, pattern='^[A-Z]{3}$')"
    """
    name, kind = audited(column).name, audited(column).type
    if kind.family is not Family.TEXT:
        raise CheckProblem(
            f"column '{name}' is of type {kind.text}, and only text can match a pattern.",
            f"Use in_range({name}, …), or sql('…') with a cast.",
        )
    predicate = f"NOT ({column} RLIKE {sql_string(java_pattern(pattern))})"
    return FailingRows(predicate, by_user=True, longest_text=longest_text(pattern), text=audited(column))


@matches.prepare
def with_usable_pattern(check: Check) -> Check:
    """Return ``check``, whose pattern the engine can surely read.

    Raises:
        ValueError: With what's wrong with it.
    """
    pattern = check.arguments["pattern"]
    try:
        java_pattern(pattern)
    except RegexError as error:
        raise ValueError(f"the pattern {pattern!r} {error}.") from None
    return check
