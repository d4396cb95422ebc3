"""Standard output: values as safe text (data can't control the terminal), tables drawn by rich, and JSON."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from lakegate.cli.streams import as_json
from lakegate.cli.wrapping import cut_off, shorten, tell, wrapped_command
from lakegate.errors import InputError
from lakegate.model.rows import json_safe
from lakegate.model.words import count
from lakegate.progress import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


@contextmanager
def writing(file: Path, what: str) -> Iterator[Path]:
    """Yield a path for the body to write ``what`` to, and move it to ``file`` at the end. Nobody sees a partial file.

    If the body fails, ``file`` stays as it was. A pipe, a device, or a file in a folder that this user can't write to
    is written in place.

    Raises:
        InputError: The file can't be written.
    """
    # A pipe such as /dev/stdout has no other path.
    target = file if file.exists() and not file.is_file() else file.resolve()
    replaceable = target.is_file() and os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)
    # Not named by the process id alone: two containers may have the same one.
    draft = (
        target.with_name(f".lakegate-{os.getpid()}-{secrets.token_hex(4)}")
        if replaceable or not target.exists()
        else target
    )
    try:
        yield draft
        if replaceable:
            shutil.copymode(target, draft)
        if draft != target:
            draft.replace(target)
    except OSError as error:
        message = f"Can't write the {what} to {file}: {error.strerror or error}"
        raise InputError(message, hint="Choose another --file.", file=str(file)) from error
    finally:
        if draft != target:
            with suppress(OSError):
                draft.unlink()


def clip(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters.

    Example:
        >>> clip("passenger_count", 10)
        'passenger…'
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def clip_path(path: str, width: int) -> str:
    """Return a path in at most ``width`` characters. If there's room, the file's name stays whole.

    Example:
        >>> clip_path("file:/lake/warehouse/nyc/trips/0001.parquet", 24)
        'file:/lake…/0001.parquet'
    """
    folder, slash, name = path.rpartition("/")
    left = width - len(slash + name)
    if len(path) <= width or left < 1:
        return shorten(path, width)
    return clip(folder, left) + slash + name


def cell(value: object) -> str:
    """Return a table's value as text for people. ``None`` is ``NULL``.

    Example:
        >>> cell(None), cell(True), cell({"a": 1})
        ('NULL', 'true', '{"a": 1}')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (list, tuple, Mapping)):
        return one_line(json.dumps(json_safe(value), ensure_ascii=False))
    return one_line(value)


def count_at_most(number: int | None, most: int | None) -> str:
    """Return a number as text or, if it's unknown, its upper bound.

    Example:
        >>> count_at_most(289, 311), count_at_most(None, 311), count_at_most(None, None)
        ('289', '≤ 311', '')
    """
    return f"≤ {most:,}" if number is None and most is not None else count(number)


_UNLIMITED = 100_000
_GAP = 3
"""Characters between two columns."""
_HASH = 12
_COMMAND_INDENT = " " * 4
_WORD = re.compile(r"\S+")
_HANGING = 2
"""Further characters from the margin for a sentence's second line."""
_MIN_CUT_WIDTH = 16
"""Minimum width of a column that is cut."""
_MIN_WRAPPED_WIDTH = 6
"""Minimum width of a column that wraps, beside columns that don't."""


def console() -> Console:
    """Return a console on standard output.

    If that isn't a terminal, nothing is wrapped or cut: the reader is another program.
    """
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)


def width_or(default: int) -> int:
    """Return the terminal's width in characters; ``default`` if standard output isn't a terminal."""
    width = console().width
    return default if width == _UNLIMITED else width


def echo_json(value: Any) -> None:
    """Print one JSON document; see :func:`lakegate.model.rows.json_safe`."""
    click.echo(as_json(json_safe(value), indent=2))


def say(*lines: str) -> None:
    """Print lines, which may contain rich markup. On a terminal, long ones are broken between words."""
    from rich.text import Text

    printer = console()
    for line in lines:
        for part in _broken(Text.from_markup(line, emoji=False), printer.width):
            printer.print(part, soft_wrap=True)


def say_wrapped(*lines: str, indent: int = 2) -> None:
    """Print sentences as :func:`say` does, indented."""
    say(*(" " * indent + line for line in lines))


def _broken(text: Text, width: int) -> Iterator[Text]:
    """Break text between words. Its second line and later ones are indented further than the first."""
    from rich.cells import cell_len

    plain, starts = text.plain, [0]
    hanging = len(plain) - len(plain.lstrip()) + _HANGING
    for word in _WORD.finditer(plain):
        room = width - (hanging if len(starts) > 1 else 0)
        if plain[starts[-1] : word.start()].strip() and cell_len(plain[starts[-1] : word.end()]) > room:
            starts.append(word.start())
    for number, part in enumerate(text.divide(starts[1:])):
        part.rstrip()
        part.pad_left(hanging if number else 0)
        yield part


def short_hash(commit: str) -> str:
    """Return a commit's hash as a terminal has room for it. Commands accept its first digits."""
    return commit[:_HASH] if width_or(0) else commit


def safe(text: object) -> str:
    """Return ``text`` escaped for use inside markup. Nothing in it is markup or controls the terminal."""
    from rich.markup import escape

    return escape(one_line(text))


def make_table(*columns: str, right: Collection[str] = (), whole: Collection[str] | None = None) -> Table:
    """Return an empty table.

    Args:
        right: Columns to align to the right, such as numbers.
        whole: Columns that are never wrapped. Default: the first one, which people copy into the next command.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        no_wrap = name in (columns[:1] if whole is None else whole)
        table.add_column(_literal(one_line(name)), justify=justify, overflow="fold", no_wrap=no_wrap)
    return table


def show(table: Table, *, indent: int = 0) -> None:
    """Print a table, ``indent`` characters from the margin."""
    from rich.padding import Padding

    console().print(Padding.indent(table, indent))


class Styled(NamedTuple):
    """A row in a style, such as ``red``."""

    cells: Sequence[object]
    style: str | None


def show_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object] | Styled],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    drop: Sequence[str] = (),
    cut: str | None = None,
    indent: int = 0,
    empty: str | None = None,
) -> None:
    """Print a table.

    Args:
        right: Columns to align to the right, such as numbers.
        whole: Columns that, like those in ``right``, aren't wrapped unless there's no room for them.
        drop: Columns to leave out if the terminal is too narrow for all, in this order.
        cut: A column whose text is cut to the room that the others leave.
        indent: Characters from the margin.
        empty: What to print on standard error if there are no rows.
    """
    styled = [row if isinstance(row, Styled) else Styled(row, None) for row in rows]
    if empty is not None and not styled:
        tell(empty)
        return
    kept = {columns[0], *whole, *right} - {cut}
    texts = {name: [name, *(str(row.cells[at]) for row in styled)] for at, name in enumerate(columns)}
    least = {name: _widest(cells, splits=name not in kept) for name, cells in texts.items()}
    if cut is not None:
        least[cut] = min(_widest(texts[cut], splits=False), _MIN_CUT_WIDTH)
    names, room = list(columns), console().width - indent + _GAP
    for name in drop:
        if sum(least[one] + _GAP for one in names) > room:
            names.remove(name)
    # Names are shortened before others are. A number that is cut off is a different number, so numbers are folded.
    for name in sorted(names, key=lambda name: (name in right, name in kept, name != columns[0])):
        excess = sum(least[one] + _GAP for one in names) - room
        least[name] = max(least[name] - max(excess, 0), min(least[name], _MIN_WRAPPED_WIDTH))
    widths = _grown({name: least[name] for name in names}, texts, room)
    table = make_table(*names, right=right, whole=())
    for name, column in zip(names, table.columns, strict=True):
        column.width = widths[name]
    for row in styled:
        cells = ((name, row.cells[columns.index(name)]) for name in names)
        table.add_row(
            *(_cell(each, None if name in right else widths[name], is_cut=name == cut) for name, each in cells),
            style=row.style,
        )
    show(table, indent=indent)


def _widest(texts: Sequence[str], *, splits: bool) -> int:
    from rich.cells import cell_len

    return max(cell_len(part) for text in texts for part in (text.split() or [""] if splits else [text]))


def _grown(least: Mapping[str, int], texts: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return the columns' widths when they share the room that is left, the first ones first."""
    left = max(room - sum(width + _GAP for width in least.values()), 0)
    widths = dict(least)
    for name, width in least.items():
        more = min(max(_widest(texts[name], splits=False) - width, 0), left)
        widths[name] += more
        left -= more
    return widths


def _cell(value: object, width: int | None, *, is_cut: bool) -> Any:
    """Return a value to draw. What is wider than ``width`` loses its middle, each word if it can be broken."""
    from rich.text import Text

    if not isinstance(value, (str, int)):
        return value
    text = one_line(value)
    if width is None:
        return Text(text)
    return Text(cut_off(text, width) if is_cut else _WORD.sub(lambda word: shorten(word[0], width), text))


def count_fitting(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int, *, note: int = 0) -> int:
    """Return how many columns, from the left, fit side by side in ``width`` characters. At least one, if there are any.

    Args:
        note: Characters to leave for a column in place of those that don't fit.
    """
    from rich.cells import cell_len

    lines = [columns, *rows]
    widest = (max(cell_len(line[at]) for line in lines) for at in range(len(columns)))
    widths = [end - _GAP for end in accumulate(each + _GAP for each in widest)]
    return len(columns) if not widths or widths[-1] <= width else max(sum(each + note <= width for each in widths), 1)


def null(text: str) -> Any:
    """Return ``text``, dimmed if it's ``NULL``."""
    from rich.text import Text

    return Text(text, style="dim italic") if text == "NULL" else Text(text)


def next_commands(*pairs: tuple[str, str]) -> None:
    """Print what to do next, if anything: a purpose and, on lines of its own, the command to copy, for each pair."""
    if pairs:
        say("", "[bold]Next[/]")
    for purpose, command in pairs:
        say(f"  [dim]{safe(purpose)}[/]")
        shown = wrapped_command(one_line(command), console().width - len(_COMMAND_INDENT))
        say(*(f"{_COMMAND_INDENT}[cyan]{safe(line)}[/]" for line in shown.split("\n")))


def _literal(text: str) -> Any:
    from rich.text import Text

    return Text(text)
