"""HTML built of values: whatever isn't markup already is escaped, and stays where it is put."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from typing import Any

from lakegate.progress import one_line

CELL = 120
"""Characters of a value in a table's cell; the rest is counted."""
_VOID = {"br", "col", "hr", "meta"}


class Html(str):
    """Text that is markup. Only :func:`tag` and this package's own constants make it."""

    __slots__ = ()


Child = str | Html | int | None | Iterable["Child"]
"""What an element may hold: text, which is escaped; markup; nothing; or several of them."""


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    Args:
        **attributes: By name; ``class_`` is ``class`` and ``aria_label`` is ``aria-label``. ``True`` is an attribute
            without a value, ``None`` and ``False`` none at all.

    Example:
        >>> tag("td", "<script>", tag("b", 1), class_="bad", hidden=True)
        '<td class="bad" hidden>&lt;script&gt;<b>1</b></td>'
    """
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{text(children)}</{name}>")


def text(child: Child) -> Html:
    """Return ``child`` as markup.

    Example:
        >>> text(["a & b", None, tag("br")])
        'a &amp; b<br>'
    """
    if child is None:
        return Html("")
    if isinstance(child, Html):
        return child
    if isinstance(child, (str, int)):
        return Html(escape(one_line(child)))
    return Html("".join(map(text, child)))


def _attribute(name: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - an attribute may be just there
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(one_line(value))}"'


def clipped(value: object, limit: int) -> str:
    """Return a value as text of at most ``limit`` characters, and how many were left out.

    Example:
        >>> clipped("x" * 10_000, 5)
        'xxxxx… (9,995 more characters)'
    """
    shown = str(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit:,} more characters)"


def cell(value: Any) -> Html:
    """Return a value of a row of data. It can neither leave its cell nor turn the writing direction around it.

    Example:
        >>> cell(None), cell("<b>"), cell({"a": 1}), cell("")
        ('<i>NULL</i>', '<bdi>&lt;b&gt;</bdi>', '<bdi>{&quot;a&quot;: 1}</bdi>', '<i>empty</i>')
    """
    if value is None:
        return tag("i", "NULL")
    if value == "":
        return tag("i", "empty")
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, datetime):
        value = value.isoformat(sep=" ")
    elif isinstance(value, (list, tuple, Mapping)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    elif isinstance(value, bytes):
        value = value.hex()
    return tag("bdi", clipped(value, CELL))
