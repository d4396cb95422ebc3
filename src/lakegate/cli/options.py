"""Options and arguments that several commands share, with their shell completion."""

from __future__ import annotations

import codecs
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from lakegate.cli.app import App
from lakegate.errors import ConfigurationError, LakegateError
from lakegate.model.refs import MAIN
from lakegate.model.words import parse_duration

if TYPE_CHECKING:
    from lakegate.config import Settings
    from lakegate.lake import Lake
    from lakegate.model.batch import CsvOptions
    from lakegate.model.checks import Tolerance
    from lakegate.model.request import IngestOptions
    from lakegate.model.states import RunStatus

F = TypeVar("F", bound=Callable[..., Any])
_Completion = Callable[[click.Context, click.Parameter, str], list[str]]

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_COMPLETION_TIMEOUT_S = 2.0
_COMPLETED_RUNS = 100


def span(value: str) -> timedelta:
    """Parse a duration such as ``30s`` or ``7d``. Pass this as an option's ``type``."""
    try:
        return parse_duration(value)
    except ConfigurationError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from None


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Add several options; the help lists them in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _completion(names: Callable[[Lake], Iterable[str]], *, asks_catalog: bool = True) -> _Completion:
    """Return a function that completes ``names``; it gives up if that takes too long, and starts and prints nothing."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
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

    return complete


def complete_configured(names: Callable[[Settings], Iterable[str]]) -> _Completion:
    """Return a function that completes names in the settings."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in names(ctx.ensure_object(App).settings()) if name.startswith(incomplete)]
        except LakegateError:
            return []

    return complete


def _complete_runs(status: RunStatus | None = None) -> _Completion:
    # The journal needs no server.
    return _completion(
        lambda lake: (run.run_id for run in lake.runs(status=status, limit=_COMPLETED_RUNS)), asks_catalog=False
    )


def _table_names(lake: Lake) -> list[str]:
    unreadable: list[str] = []
    readable = [str(table.table) for table in lake.tables(on_unreadable=lambda name, _: unreadable.append(name))]
    return sorted([*readable, *unreadable])


complete_tables = _completion(_table_names)
complete_branches = _completion(lambda lake: (ref.name for ref in lake.branches.list() if ref.name != MAIN))
"""Without ``main``, which is neither audited, published, discarded nor deleted."""
complete_tags = _completion(lambda lake: (ref.name for ref in lake.tags.list()))
complete_refs = _completion(lambda lake: (ref.name for ref in (*lake.branches.list(), *lake.tags.list())))
complete_runs = _complete_runs()
complete_published_runs = _complete_runs("published")

table_argument = click.argument("table", shell_complete=complete_tables)


def branch_argument(name: str = "branch") -> Callable[[F], F]:
    """Add an argument that names a branch."""
    return click.argument(name, shell_complete=complete_branches)


def ref_option(*names: str, text: str = "Branch, tag or commit to read.") -> Callable[[F], F]:
    """Add ``--ref``, or an option with another name, that takes a ref. Default: ``main``."""
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
    """Add ``--at``: a time, a tag, or a commit's hash or a prefix of it."""
    return click.option("--at", metavar="TIME|TAG|COMMIT", help=text)


def check_option(text: str) -> Callable[[F], F]:
    """Add ``--check``, repeatable."""
    return click.option("--check", "-c", "checks", multiple=True, metavar="CHECK", help=text)


class _ShownCount(click.IntRange):
    """A number that Spark and databases take. Its upper bound would only clutter the help."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the argument."""
        number = super().convert(value, param, ctx)
        if number > _MOST:
            self.fail(f"{number} is too large; the most is {_MOST}.", param, ctx)
        return number


_MOST = 2**31 - 1
SHOWN_COUNT = _ShownCount(min=1)
"""A number of rows or entries to show."""


def limit_option(default: int) -> Callable[[F], F]:
    """Add ``--limit``/``-n``."""
    return click.option(
        "--limit",
        "-n",
        type=SHOWN_COUNT,
        default=default,
        show_default=True,
        metavar="N",
        help="Maximum number to show.",
    )


def since_option(text: str, *, default: str | None = None) -> Callable[[F], F]:
    """Add ``--since``, a time or a duration ago, which is converted to a time."""
    return click.option(
        "--since", metavar="TIME|SPAN", type=_since, default=default, show_default=default is not None, help=text
    )


def _since(value: str) -> datetime:
    try:
        return datetime.now(UTC) - parse_duration(value)
    except (ConfigurationError, OverflowError):
        pass
    try:
        given = datetime.fromisoformat(value)
        return (given if given.tzinfo is not None else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{value}' is neither a time (2026-01-31T07:00:00Z) nor a duration (90m, 24h, 7d)."
        ) from None


def _limit(value: str) -> Tolerance:
    from lakegate.model.quarantine import parse_limit

    try:
        return parse_limit(value)
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


file_option = click.option(
    "--file",
    "-f",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to this file. Default: standard output, or for a page on a terminal, a file in this folder.",
)
"""Where to write a report."""


def ingest_options(*, checked: str, branch_of: str) -> Callable[[F], F]:
    """Add the options that ``ingest``, ``watch`` and ``backfill`` share.

    Args:
        checked: What must pass a check, such as "the batch".
        branch_of: What a rejected branch belongs to, such as "batch".
    """
    from lakegate.model.request import ModeName, OnChanged, OnFailure, SchemaMode

    return with_options(
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
            "--quarantine-limit",
            metavar="ROWS|PERCENT",
            type=_limit,
            help="How many rows of a batch may be quarantined, such as 100 or 5%. With more, it's rejected.",
        ),
        click.option(
            "--schema",
            type=click.Choice(get_args(SchemaMode)),
            help="If the columns differ from the table's: refuse the files, change the table, or drop what it lacks.",
        ),
        click.option(
            "--column",
            "columns",
            multiple=True,
            metavar="OLD=NEW",
            callback=_columns,
            help="Write the files' column OLD to the table's column NEW. Repeatable.",
        ),
        click.option(
            "--mode",
            type=click.Choice(get_args(ModeName)),
            help="What happens to existing rows. Default: the table's settings, else append.",
        ),
        click.option(
            "--key", multiple=True, metavar="COLUMN", help="Upsert: a column that identifies a row. Repeatable."
        ),
        click.option(
            "--delete-when", metavar="SQL", help="Upsert: delete the key's row if this is true, such as \"op = 'D'\"."
        ),
        click.option(
            "--timezone",
            metavar="ZONE",
            help="Zone of times without one, such as Europe/Berlin, for columns with one.",
        ),
        format_option(),
    )


def ingest_options_from(given: Mapping[str, Any]) -> IngestOptions:
    """Return how to ingest, as the options of a command say it."""
    from lakegate.model.request import IngestOptions

    return IngestOptions(**{name: given[name] for name in IngestOptions.__annotations__ if name in given})


def _one_character(value: str) -> str:
    delimiter = _DELIMITERS.get(value, value)
    if len(delimiter) != 1:
        raise click.BadParameter(f"'{value}' is neither one character nor any of {', '.join(sorted(_DELIMITERS))}.")
    return delimiter


def _types(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    wrong = next((value for value in values if not all(part.strip() for part in value.partition("="))), None)
    if wrong is not None:
        raise click.BadParameter(f"'{wrong}' isn't COL=TYPE, such as zip=string or 'fee=decimal(10, 2)'.")
    pairs = (value.rpartition("=") for value in values)
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _encoding(value: str) -> str:
    try:
        codecs.lookup(value)
    except (LookupError, ValueError):
        raise click.BadParameter(
            f"Unknown encoding '{value}'. Use one that Python supports, such as utf-8 or cp1252."
        ) from None
    return value


csv_options = with_options(
    click.option("--delimiter", metavar="CHAR", type=_one_character, help="CSV: the character between fields."),
    click.option("--no-header", is_flag=True, help="CSV: the first line is data."),
    click.option("--encoding", metavar="NAME", type=_encoding, help="CSV: the files' encoding."),
    click.option(
        "--null-value", "null_values", multiple=True, metavar="TEXT", help="CSV: text to read as NULL. Repeatable."
    ),
    click.option(
        "--decimal", type=click.Choice([".", ","]), help="CSV: decimal separator. With ',' points may group digits."
    ),
    click.option(
        "--numbers",
        type=click.Choice(["plain", "accounting"]),
        help="CSV: accounting also reads '1,234.50', '123-', '(123)' and currency signs.",
    ),
    click.option("--date-format", metavar="FORMAT", help="CSV: how dates are written, such as %d.%m.%Y."),
    click.option("--timestamp-format", metavar="FORMAT", help="CSV: how times are written, such as '%d.%m.%Y %H:%M'."),
    click.option(
        "--skip-lines", type=click.IntRange(min=0), metavar="N", help="CSV: lines before the header to leave out."
    ),
    click.option(
        "--skip-footer", type=click.IntRange(min=0), metavar="N", help="CSV: lines at the end to leave out (totals)."
    ),
    click.option(
        "--types", multiple=True, metavar="COL=TYPE", callback=_types, help="CSV: type of a column. Repeatable."
    ),
)
"""Options for reading CSV. :func:`csv_from` takes their values."""


def csv_from(given: dict[str, Any], configured: CsvOptions) -> CsvOptions | None:
    """Take the values of :func:`csv_options` out of ``given``. Merge them into ``configured``; ``None`` if unset."""
    names = (name for name in type(configured).model_fields if name in given and name != "types")
    changes = {name: value for name in names if (value := given.pop(name)) not in (None, ())}
    if given.pop("no_header"):
        changes["header"] = False
    if types := given.pop("types"):
        changes["types"] = {**configured.types, **types}
    return configured.model_copy(update=changes) if changes else None


def format_option(*names: str) -> Callable[[F], F]:
    """Add ``--format``, the format of source files."""
    from lakegate.model.batch import FileFormat

    return click.option(
        "--format",
        *names,
        type=click.Choice(get_args(FileFormat)),
        help="Format of the files. Default: detected from their names.",
    )


partition_option = click.option(
    "--partition-by",
    multiple=True,
    metavar="TRANSFORM",
    help="Partition a new table, such as by 'days(pickup)'. Repeatable.",
)


yes_option = click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
"""Skips the confirmation; see :func:`require_consent`."""


def require_consent(question: str, *, yes: bool) -> None:
    """Ask for confirmation on standard error, unless ``yes``, and end the command if it isn't given.

    Raises:
        click.UsageError: Standard input isn't a terminal.
        click.Abort: The answer is no, or the user pressed Ctrl-C or Ctrl-D.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Can't ask for confirmation: stdin isn't a terminal. Pass --yes.")
    try:
        is_given = click.confirm(question, err=True)
    except click.Abort:
        raise click.Abort from click.ClickException("Interrupted. Nothing was changed.")
    if not is_given:
        raise click.Abort from click.ClickException("Nothing was changed.")
