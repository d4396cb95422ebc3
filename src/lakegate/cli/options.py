"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lakegate.cli import completions
from lakegate.cli.app import App

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]


def _remember_output(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    # Errors that come later are told in the same format.
    ctx.ensure_object(App).output = value
    return value


def output_option(*formats: str) -> Callable[[F], F]:
    """Add ``--output``/``-o``: ``table`` (the default), ``json``, and further ``formats``."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "json", *formats]),
        default="table",
        show_default=True,
        is_eager=True,
        callback=_remember_output,
        help="What to print on standard output.",
    )


def table_argument() -> Callable[[F], F]:
    """Add the argument TABLE, such as ``nyc.trips``."""
    return click.argument("table", shell_complete=completions.tables)


def branch_argument(name: str = "branch") -> Callable[[F], F]:
    """Add an argument that names a branch."""
    return click.argument(name, shell_complete=completions.branches)


def ref_option(text: str = "Branch, tag or commit to read.") -> Callable[[F], F]:
    """Add ``--ref``, ``main`` by default."""
    return click.option(
        "--ref", default="main", show_default=True, metavar="REF", help=text, shell_complete=completions.refs
    )


def from_option(text: str) -> Callable[[F], F]:
    """Add ``--from``, ``main`` by default, as ``source``."""
    return click.option(
        "--from",
        "source",
        default="main",
        show_default=True,
        metavar="REF",
        help=text,
        shell_complete=completions.refs,
    )


def at_option(text: str = "Read as of this time (2026-01-31T07:00:00Z) or commit.") -> Callable[[F], F]:
    """Add ``--at``: a time or a commit hash."""
    return click.option("--at", metavar="TIME|COMMIT", help=text)


def check_option(text: str) -> Callable[[F], F]:
    """Add ``--check``, repeatable."""
    return click.option("--check", "-c", "checks", multiple=True, metavar="CHECK", help=text)


def limit_option(default: int) -> Callable[[F], F]:
    """Add ``--limit``/``-n``."""
    return click.option(
        "--limit",
        "-n",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        metavar="N",
        help="How many to show.",
    )
