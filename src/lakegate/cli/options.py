"""Options and arguments that several commands share, and the names that the shell completes for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from lakegate.cli.app import App
from lakegate.errors import ConfigurationError
from lakegate.model.words import parse_duration

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import RunStatus

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_TIMEOUT_S = 2.0
_COMPLETED_RUNS = 100


def span(value: str) -> timedelta:
    """Convert an option's value, such as ``30s`` or ``7d``; pass it as ``type``."""
    try:
        return parse_duration(value)
    except ConfigurationError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from None


def table_argument() -> Callable[[F], F]:
    """Add the argument TABLE, such as ``nyc.trips``."""
    return click.argument("table", shell_complete=complete_tables)


def branch_argument(name: str = "branch") -> Callable[[F], F]:
    """Add an argument that names a branch."""
    return click.argument(name, shell_complete=complete_branches)


def ref_option(*names: str, text: str = "Branch, tag or commit to read.") -> Callable[[F], F]:
    """Add ``--ref``, or an option of another name, that takes a reference; ``main`` by default."""
    return click.option(
        *(names or ("--ref",)),
        default="main",
        show_default=True,
        metavar="REF",
        help=text,
        shell_complete=complete_refs,
    )


def at_option(
    text: str = "Read as of this time (2026-01-31T07:00:00Z, '10m ago', yesterday), tag or commit.",
) -> Callable[[F], F]:
    """Add ``--at``: a time, a tag or a commit, of which the first digits do."""
    return click.option("--at", metavar="TIME|TAG|COMMIT", help=text)


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
        help="Maximum number to show.",
    )


def since_option(text: str, *, default: str | None = None) -> Callable[[F], F]:
    """Add ``--since``, which becomes a time: one that is given, or so long ago."""
    return click.option(
        "--since", metavar="TIME|SPAN", callback=_since, default=default, show_default=default is not None, help=text
    )


def _since(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(value)
    except (ConfigurationError, OverflowError):
        pass
    try:
        given = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"'{value}' is neither a time (2026-01-31T07:00:00Z) nor a duration (90m, 24h, 7d)."
        ) from None
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


def _limit(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | str | None:
    from lakegate.model.quarantine import parse_limit

    try:
        return None if value is None else parse_limit(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is neither a number of rows (100) nor a percentage (5%).") from None


def _columns(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    names = {}
    for text in value:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (old and equals and new):
            raise click.BadParameter(f"'{text}' isn't OLD=NEW, such as 'fare=fare_amount'.")
        names[old] = new
    return names


def file_option() -> Callable[[F], F]:
    """Add ``--file``/``-f``: where a report goes."""
    return click.option(
        "--file",
        "-f",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write it to this file. Default: standard output; a page goes to a file when that is a terminal.",
    )


def ingest_options(*, checked: str, branch_of: str) -> Callable[[F], F]:
    """Add the options that ``ingest``, ``watch`` and ``backfill`` share.

    Args:
        checked: What a check must hold for, such as "the batch".
        branch_of: Whose branch ``--on-failure`` is about, such as "batch".
    """
    from lakegate.model.request import OnChanged, OnFailure, OnSameContent, SchemaMode

    options: tuple[Callable[[F], F], ...] = (
        check_option(f"A check that {checked} must pass, such as 'in_range(fare, 0, 500)'. Repeatable."),
        click.option(
            "--on-failure",
            type=click.Choice(get_args(OnFailure)),
            help=f"Keep or drop the branch of a rejected {branch_of}.",
        ),
        click.option(
            "--on-changed",
            type=click.Choice(get_args(OnChanged)),
            help="If a published file has changed: refuse it, append its rows, or replace the old ones.",
        ),
        click.option(
            "--on-same-content",
            type=click.Choice(get_args(OnSameContent)),
            help="If a file's bytes were published from another path: append its rows, skip it, or refuse it.",
        ),
        click.option(
            "--quarantine-limit",
            metavar="ROWS|PERCENT",
            callback=_limit,
            help="Rows that checks may quarantine of a batch, such as 100 or 5%; more reject it.",
        ),
        click.option(
            "--schema",
            type=click.Choice(get_args(SchemaMode)),
            help="If the columns aren't the table's: refuse the files, change the table, or leave out what it lacks.",
        ),
        click.option(
            "--column",
            "columns",
            multiple=True,
            metavar="OLD=NEW",
            callback=_columns,
            help="Write the files' column OLD to the table's column NEW. Repeatable.",
        ),
        click.option("--format", type=click.Choice(["parquet", "csv"]), help="Default: taken from the file names."),
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def partition_option() -> Callable[[F], F]:
    """Add ``--partition-by``, repeatable."""
    return click.option(
        "--partition-by",
        multiple=True,
        metavar="TRANSFORM",
        help="Partition a new table, such as by 'days(pickup)'. Repeatable.",
    )


def complete_tables(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete table names on main."""
    return _complete(ctx, incomplete, lambda lake: [str(table.table) for table in lake.tables()])


def complete_branches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of branches."""
    return _complete(ctx, incomplete, lambda lake: [ref.name for ref in lake.branches()])


def complete_tags(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tags."""
    return _complete(ctx, incomplete, lambda lake: [ref.name for ref in lake.tags()])


def complete_refs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of branches and tags."""
    return _complete(ctx, incomplete, lambda lake: [ref.name for ref in (*lake.branches(), *lake.tags())])


def complete_runs(
    ctx: click.Context, _param: click.Parameter, incomplete: str, status: RunStatus | None = None
) -> list[str]:
    """Complete run ids, newest first. The journal needs no server."""
    return _complete(
        ctx,
        incomplete,
        lambda lake: [run.run_id for run in lake.runs(status=status, limit=_COMPLETED_RUNS)],
        asks_catalog=False,
    )


def complete_published_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete ids of runs that can be reverted, newest first."""
    return complete_runs(ctx, param, incomplete, status="published")


def _complete(
    ctx: click.Context, incomplete: str, names: Callable[[Lake], Iterable[str]], *, asks_catalog: bool = True
) -> list[str]:
    """Return the names that start with ``incomplete``; none if it takes too long. Starts and prints nothing."""
    app = ctx.ensure_object(App)
    found: list[str] = []

    def collect() -> None:
        try:
            if asks_catalog and not app.catalog_answers():
                return
            app.quiet = True
            with app.lake() as lake:
                found.extend(name for name in names(lake) if name.startswith(incomplete))
        except Exception:  # noqa: BLE001 - completion must not print errors
            found.clear()

    worker = threading.Thread(target=collect, daemon=True)
    worker.start()
    worker.join(_COMPLETION_TIMEOUT_S)
    return [] if worker.is_alive() else found
