"""Which columns' values aren't to be shown: by patterns of their names, and of the fields in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from lakegate.model.schema import path_parts


def is_masked(patterns: Sequence[str], column: str, fields: Iterable[Sequence[str]] = ()) -> bool:
    """Return whether a column's values are masked.

    A pattern may mean a column, a struct that it's in, or a field in it: what holds a masked value is masked whole.

    Args:
        patterns: Patterns of names or of paths, in any case.
        column: Name of a column, or path of a field; odd names may be in backticks.
        fields: Paths, below it, of the fields in its type.

    Example:
        >>> is_masked(["e-mail"], "contact.`E-Mail`"), is_masked(["contact.*"], "contact", [("zip",)])
        (True, True)
        >>> is_masked(["e-mail"], "contact", [("zip",)])
        False
    """
    if not patterns:
        return False
    above = path_parts(column) or [column]
    names = {column.lower()}
    for below in ((), *fields):
        path = [part.lower() for part in (*above, *below)]
        ends = range(1, len(path) + 1)
        names.update(".".join(path[start:end]) for end in ends for start in range(end))
    return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns)
