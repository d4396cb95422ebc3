"""Standard output: tables through rich, JSON through the standard library."""

# ruff: noqa: PLC0415 - rich is slow to load, and JSON needs none
from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from lakegate.cli.render.text import json_safe, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 100_000


def out() -> Console:
    """Return a console on standard output.

    Where that is no terminal and ``COLUMNS`` is not set, nothing is wrapped or cut: the reader is another program.
    """
    from rich.console import Console

    class StdoutConsole(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1, which is how a failed audit ends.
            raise BrokenPipeError

    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return StdoutConsole(highlight=False, width=None if narrow else _UNLIMITED)


def width_or(default: int) -> int:
    """Return the terminal's width in characters, ``default`` where standard output is none."""
    width = out().width
    return default if width == _UNLIMITED else width


def only_ascii() -> bool:
    """Tell whether standard output can show no more than ASCII."""
    return out().options.ascii_only


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(json_safe(value), ensure_ascii=False, indent=2))


def say(*lines: str) -> None:
    """Print lines that may hold rich markup; long ones wrap where the terminal does, so that they can be copied."""
    console = out()
    for line in lines:
        console.print(line, soft_wrap=True)


def safe(text: object) -> str:
    """Return ``text`` for use inside markup: nothing in it is markup, nor steers the terminal."""
    from rich.markup import escape

    return escape(plain(text))


def make_table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """Return an empty table; columns named in ``right`` hold numbers, those in ``whole`` are never wrapped."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        # The first column is what the next command is given: it must stay in one piece.
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(_literal(plain(name)), justify=justify, overflow="fold", no_wrap=index == 0 or name in whole)
    return table


def add_row(table: Table, *values: object, style: str | None = None) -> None:
    """Add a row of plain text; values that are rich renderables stay as they are."""
    table.add_row(*(_literal(plain(v)) if isinstance(v, (str, int)) else v for v in values), style=style)  # type: ignore[arg-type]  # rich's own union


def show(table: Table, *, indent: int = 0) -> None:
    """Print a table, ``indent`` characters from the margin."""
    from rich.padding import Padding

    out().print(Padding.indent(table, indent))


def rows_or_nothing(table: Table, rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print ``rows``, or on standard error the sentence ``empty`` when there are none."""
    filled = False
    for row in rows:
        add_row(table, *row)
        filled = True
    if filled:
        show(table)
    else:
        click.echo(empty, err=True)


def null(text: str) -> Any:
    """Return ``text`` styled as an absent value when it is one."""
    from rich.text import Text

    return Text(text, style="dim italic") if text == "NULL" else Text(text)


def next_commands(*pairs: tuple[str, str]) -> None:
    """Print what can be done now: for each a few words and, on a line of its own, the command to copy."""
    say("", "[bold]Next[/]")
    for purpose, command in pairs:
        say(f"  [dim]{safe(purpose)}[/]", f"    [cyan]{safe(command)}[/]")


def _literal(text: str) -> Any:
    from rich.text import Text

    return Text(text)
