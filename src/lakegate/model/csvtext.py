"""Formats of numbers, dates and times in CSV that differ from SQL's, and how to rewrite them.

The rules are regular expressions that both Arrow (which inspects the files) and Spark (which reads them) support.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakegate.errors import InputError

DECIMAL_COMMA = r"^[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?$"
"""A number with a decimal comma. Dots may group its digits by three."""
NON_FINITE = ("NaN", "Inf", "-Inf", "Infinity", "-Infinity")
"""Values of a double that aren't numbers."""
LONE_DIGIT = r"\b([0-9])\b"
"""A digit that needs a leading zero in SQL's date format."""
_PARTS = {
    "%d": "(?P<d>[0-9]{1,2})",
    "%m": "(?P<m>[0-9]{1,2})",
    "%Y": "(?P<Y>[0-9]{4})",
    "%H": "(?P<H>[0-9]{1,2})",
    "%M": "(?P<M>[0-9]{2})",
    "%S": "(?P<S>[0-9]{2})",
}
_DATE, _TIME = ("Y", "m", "d"), ("H", "M", "S")
_DIRECTIVE = re.compile(r"%.|[^%]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How to rewrite a value in SQL's format.

    Attributes:
        pattern: Matches a whole value.
        order: Group numbers of year, month, day, hour, minute and second, if present.
    """

    pattern: str
    order: tuple[int, ...]

    def replacement(self, sign: str) -> str:
        r"""Return the replacement; ``sign`` introduces a group reference: ``$`` in Java, ``\`` in RE2.

        Example:
            >>> rewrite("%d.%m.%Y", option="date-format").replacement("$")
            '$3-$2-$1'
        """
        groups = [f"{sign}{number}" for number in self.order]
        day, clock = "-".join(groups[: len(_DATE)]), ":".join(groups[len(_DATE) :])
        return f"{day} {clock}" if clock else day


def rewrite(form: str, *, option: str) -> Rewrite:
    """Return how to rewrite dates or times of a format.

    Args:
        form: A ``strptime`` format with ``%d``, ``%m``, ``%Y``, ``%H``, ``%M``, ``%S`` and text between them.

    Raises:
        InputError: If it has other directives, or lacks one that a date or time needs.
    """
    parts = _DIRECTIVE.findall(form)
    unknown = [part for part in parts if part.startswith("%") and part not in _PARTS]
    names = [part[1] for part in parts if part in _PARTS]
    wanted = _DATE if option == "date-format" else (*_DATE, *_TIME[: max(2, sum(name in _TIME for name in names))])
    if unknown or sorted(names) != sorted(wanted):
        example = "%d.%m.%Y" if option == "date-format" else "%d.%m.%Y %H:%M:%S"
        raise InputError(
            f"Invalid --{option} '{form}': it needs {', '.join(f'%{name}' for name in wanted)}, each once.",
            hint=f"For example --{option} '{example}'.",
            option=option,
        )
    pieces = []
    for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        piece = re.sub(r"\?P<.>", "", _PARTS[part]) if part in _PARTS else _literal(part)
        # Without a separator, a single digit could belong to either part.
        pieces.append(piece.replace("{1,2}", "{2}") if before in _PARTS or after in _PARTS else piece)
    pattern = "".join(pieces)
    return Rewrite(pattern=f"^{pattern}$", order=tuple(names.index(name) + 1 for name in wanted))


def _literal(text: str) -> str:
    return "".join(f"[{character}]" if character in ".$|()*+?{}" else re.escape(character) for character in text)
