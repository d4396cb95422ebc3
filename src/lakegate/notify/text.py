"""Texts of others in messages: on one line, of bounded length, and without a meaning of their own."""

from __future__ import annotations

from typing import Any

ELLIPSIS = "…"
_WIDE = 0x10000
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def one_line(value: object) -> str:
    r"""Return ``value`` on one line, with what cannot be seen written out: it could turn or hide what stands around it.

    Example:
        >>> print(one_line("a\nb\u202ec"))
        a\nb\u202ec
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def clip(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` characters, as UTF-16 counts them, which is the strictest way to count.

    Example:
        >>> clip("passenger_count", 10), clip("🐘🐘🐘", 4)
        ('passenger…', '🐘…')
    """
    return _cut([(c, _width(c)) for c in text[: limit + 1]], limit)


def escape(text: str, limit: int) -> str:
    """Return ``text`` for Slack's mrkdwn, in at most ``limit`` characters: nothing in it mentions or links.

    Source: https://docs.slack.dev/messaging/formatting-message-text#escaping

    Example:
        >>> escape("<!here> & co", 100), escape("<<<", 9)
        ('&lt;!here&gt; &amp; co', '&lt;&lt;…')
    """
    pieces = [_ENTITIES.get(c, c) for c in one_line(text[: limit + 1])[: limit + 1]]
    return _cut([(piece, len(piece) if len(piece) > 1 else _width(piece)) for piece in pieces], limit)


def code(text: str, limit: int) -> str:
    r"""Return ``text`` as code in Slack's mrkdwn, in at most ``limit`` characters: nothing in it ends the code.

    Example:
        >>> code("a`b", 10) == "`a\N{MODIFIER LETTER GRAVE ACCENT}b`"
        True
    """
    return f"`{escape(without_ticks(text), limit - 2) or ' '}`"


def without_ticks(text: str) -> str:
    """Return ``text`` with a letter that looks like it for each backtick, which would end code in Slack's mrkdwn.

    No apostrophe: that would end a quoted word of a command, and what comes after it would be commands of its own.
    """
    return text.replace("`", "\N{MODIFIER LETTER GRAVE ACCENT}")


def cell(value: Any, limit: int = 60) -> str:
    """Return a value of a row, as people read it.

    Example:
        >>> cell(None), cell(2.5), cell("x" * 99, limit=4)
        ('NULL', '2.5', 'xxx…')
    """
    return "NULL" if value is None else clip(one_line(value), limit)


def _cut(pieces: list[tuple[str, int]], limit: int) -> str:
    if sum(width for _, width in pieces) <= limit:
        return "".join(piece for piece, _ in pieces)
    kept, left = [], limit - 1
    for piece, width in pieces:
        if width > left:
            break
        kept.append(piece)
        left -= width
    return "".join((*kept, ELLIPSIS)) if limit > 0 else ""


def _width(character: str) -> int:
    return 2 if ord(character) >= _WIDE else 1
