"""A message in Slack's Block Kit, within its limits whatever the data holds.

All text is ``verbatim``: Slack then makes no links or mentions of its own of what looks like them. What would make
them by intent is escaped.

Source: https://docs.slack.dev/reference/block-kit/blocks and
https://docs.slack.dev/reference/block-kit/composition-objects/text-object
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakegate.notify.message import Failure, Message
from lakegate.notify.text import cell, clip, code, escape, one_line, without_ticks

MAX_BLOCKS = 50
MAX_HEADER = 150
MAX_SECTION = 3000
MAX_FIELDS = 10
MAX_FIELD = 2000
_VALUE = 300
_SENTENCE = 600
_ROW = 500
_SIGNS = {"error": "\N{LARGE RED CIRCLE}", "warn": "\N{LARGE YELLOW CIRCLE}", "info": "\N{LARGE GREEN CIRCLE}"}

Block = dict[str, Any]


def blocks(message: Message) -> list[Block]:
    """Return the message's blocks."""
    return list(_blocks(message))


def fallback(message: Message) -> str:
    """Return what Slack shows where it shows no blocks: in a notification, or to a screen reader."""
    return f"{escape(message.title, _VALUE)}: {escape(message.summary, _SENTENCE)}"


def _blocks(message: Message) -> Iterator[Block]:
    yield {"type": "header", "text": {"type": "plain_text", "text": _header(message), "emoji": False}}
    if message.summary:
        yield _section(escape(message.summary, _SENTENCE))
    if message.facts:
        fields = [_mrkdwn(f"*{name}*\n{code(value, _VALUE)}") for name, value in message.facts[:MAX_FIELDS]]
        yield {"type": "section", "fields": fields}
    for failure in message.failures:
        yield _section(_failure(failure, with_table=len(message.notice.tables) > 1))
        if failure.result.examples:
            yield _section(_examples(failure))
    if message.more_failures:
        yield _section(f"… and {message.more_failures} more that failed.")
    if message.commands:
        yield _section("\n".join(f"{purpose}: {code(command, _VALUE)}" for purpose, command in message.commands))
    if message.link is not None:
        yield _section(f"<{clip(message.link, 2 * _SENTENCE)}|Report of the run>")
    if message.beside:
        yield {"type": "context", "elements": [_mrkdwn(escape(message.beside, _SENTENCE))]}


def _header(message: Message) -> str:
    # Plain text knows no escapes, and no mentions either; without these two signs it stays so.
    title = one_line(message.title).replace("<", "(").replace(">", ")")
    return clip(f"{_SIGNS[message.notice.severity]} {title}", MAX_HEADER)


def _failure(failure: Failure, *, with_table: bool) -> str:
    result = failure.result
    of = f" of {code(failure.table, _VALUE)}" if with_table else ""
    columns = ", ".join(code(column, _VALUE) for column in result.columns[:5])
    about = f", column{'s' if len(result.columns) > 1 else ''} {columns}" if columns else ""
    level = "Failed" if result.severity == "error" else "Warning"
    return f"*{level}*{of}: {code(result.check, _VALUE)}{about}\n{escape(failure.told, _SENTENCE)}"


def _examples(failure: Failure) -> str:
    rows = (", ".join(f"{one_line(k)}={cell(v)}" for k, v in row.items()) for row in failure.result.examples)
    lines = "\n".join(escape(without_ticks(row), _ROW) for row in rows)
    return f"```{lines}```"


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
