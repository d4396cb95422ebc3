"""``lakegate gc``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, pass_app, redact
from lakegate.cli.commandline import PROGRAM, command
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.keeping import gc_payload, show_gc
from lakegate.errors import ConfigurationError
from lakegate.model.durations import parse_duration

if TYPE_CHECKING:
    from datetime import timedelta


def _span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return None if value is None else parse_duration(value)
    except ConfigurationError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from None
    except OverflowError:
        raise click.BadParameter(f"'{value}' is too long a time.") from None


@command(
    "gc",
    examples=("lakegate gc --dry-run", "lakegate gc", "lakegate gc --keep-rejected 30d --grace 12h -o json"),
)
@click.option("--dry-run", is_flag=True, help="Show what would go, and how much that is; drop and delete nothing.")
@click.option(
    "--keep-rejected",
    metavar="SPAN",
    callback=_span,
    help="How long branches of rejected and failed runs are kept, such as 7d. Default: ingest.keep_rejected.",
)
@click.option(
    "--grace",
    metavar="SPAN",
    callback=_span,
    help="Age below which a file is left alone, such as 1d. Default: gc.grace.",
)
@output_option()
@pass_app
def gc(app: App, /, *, dry_run: bool, keep_rejected: timedelta | None, grace: timedelta | None, output: str) -> None:
    """Drop branches of rejected runs whose time is over, and delete files that no branch or tag reaches.

    A file that any commit of a branch or tag needs (back to gc.history, if that is set) is never deleted, nor one that
    may be written just now. The warehouse must belong to this catalog alone.
    """
    with app.lake() as lake:
        report = lake.gc(dry_run=dry_run, keep_rejected=keep_rejected, grace=grace)
    if output == "json":
        echo_json(gc_payload(report))
    else:
        words = [word for word in app.words if word != "--dry-run"]
        show_gc(report, redact(shlex.join([PROGRAM, *words])))
