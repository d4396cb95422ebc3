"""What the values of all pages have in common: pages of results, problems, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Literal, TypeVar

from lakegate.errors import InputError, LakegateError
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult

Part = Literal["catalog", "journal", "table", "engine"]
MOST_ON_A_PAGE = 1_000
"""Results that one page may have: what is asked for beyond that is cut."""


class Problem(Value):
    """A part of the lake that could not be read; what doesn't need it is shown.

    Attributes:
        part: What could not be read: the ``catalog``, the ``journal``, a ``table``'s files or the ``engine``.
        subject: The table, branch or run it's about, if it's about one.
        code: The error's code, such as ``catalog-unavailable``.
    """

    part: Part
    subject: str | None = None
    code: str
    message: str
    hint: str | None = None

    @classmethod
    def of(cls, part: Part, error: LakegateError, subject: str | None = None) -> Problem:
        """Return the problem that ``error`` is."""
        return cls(part=part, subject=subject, code=error.code, message=error.message, hint=error.hint)


Item = TypeVar("Item")


class Page(Value, Generic[Item]):
    """Some of many results.

    Attributes:
        next: Cursor of the page that follows; ``None`` on the last one.
        total: Number of all results, where it's known without reading them.
    """

    items: tuple[Item, ...] = ()
    next: str | None = None
    total: int | None = None
    problems: tuple[Problem, ...] = ()


class CheckLine(CheckResult):
    """What one check found in one run, with examples as far as the settings allow, and no other values of rows.

    Attributes:
        hidden_examples: Number of failing rows that the journal has and the settings hide.
    """

    table: str
    hidden_examples: int = 0

    @classmethod
    def of(cls, table: str, result: CheckResult, *, examples: int = 0, masked: Sequence[str] = ()) -> CheckLine:
        """Return the line of ``result`` with up to ``examples`` rows."""
        shown = result.shown(rows=examples, masked=masked)
        hidden = len(result.examples) - len(shown.examples)
        return cls(table=table, hidden_examples=hidden, **dict(shown))


class Command(Value):
    """A command to type next, and what it's for."""

    purpose: str
    command: str


def page_size(limit: int) -> int:
    """Return how many results a page has that is asked for ``limit``."""
    return max(1, min(limit, MOST_ON_A_PAGE))


def searchable(text: str) -> str:
    r"""Return a text that somebody typed so that a database takes it: what no name can hold matches nothing.

    Example:
        >>> searchable("trips"), searchable("a\0\udcff") == "a\N{REPLACEMENT CHARACTER}?"
        ('trips', True)
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def offset_of(cursor: str | None) -> int:
    """Return the number of results before a page whose cursor counts them.

    Raises:
        InputError: It's no cursor.

    Example:
        >>> offset_of(None), offset_of("50")
        (0, 50)
    """
    if cursor is None:
        return 0
    if not cursor.isdecimal() or not cursor.isascii():
        raise no_cursor(cursor)
    return int(cursor[:12])


def no_cursor(cursor: str) -> InputError:
    """Return the error for a text that isn't a cursor."""
    return InputError(f"'{cursor[:80]}' is not the start of a page.", hint="Start at the first page.")


def cut(items: Sequence[Item], cursor: str | None, limit: int) -> tuple[tuple[Item, ...], str | None]:
    """Return the page of ``items`` that starts at ``cursor``, and the cursor of the next one.

    Example:
        >>> cut("abcde", "2", 2), cut("abcde", "4", 2)
        ((('c', 'd'), '4'), (('e',), None))
    """
    start, size = offset_of(cursor), page_size(limit)
    return tuple(items[start : start + size]), str(start + size) if start + size < len(items) else None


def worst_first(results: Iterable[CheckLine]) -> tuple[CheckLine, ...]:
    """Return failed errors, failed warnings and the rest, each in the order given."""
    return tuple(sorted(results, key=lambda one: (one.verdict != "fail", one.severity == "warn")))
