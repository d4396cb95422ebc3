"""Propose, test and convert the contracts of tables."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, group
from lakegate.cli.check_output import (
    report_payload,
    show_all,
    show_evidence,
    show_notes,
    show_quarantined,
    summary,
)
from lakegate.cli.options import format_option
from lakegate.cli.output import echo_json, next_commands, safe, say, say_wrapped, show_rows, width_or
from lakegate.errors import AlreadyExistsError, ExitCode, InputError
from lakegate.model.words import count, counted, duration
from lakegate.progress import one_line

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.batch import FileFormat

_SCHEMA = "contract.schema.json"


@group(
    "check",
    examples=(
        "lakegate check list",
        "lakegate check init nyc.trips",
        "lakegate check test nyc.trips january/*.parquet",
        "lakegate check import orders.odcs.yaml",
        "lakegate check schema > contract.schema.json",
    ),
    default="list",
)
def check() -> None:
    """List, propose and test the contracts of tables, and convert them: from ODCS or dbt, and to ODCS.

    A contract is one YAML file per table, contracts/NAMESPACE.TABLE.yaml, with its columns, checks, partitioning,
    freshness and owner. It replaces the table's section in lakegate.toml.
    """


@check.command("list", examples=("lakegate check list", "lakegate check list -o json"))
def list_contracts(app: App) -> None:
    """List the project's contracts, or the errors in them.

    Errors come with their file, line and column. Reads only these files and the settings.
    """
    from lakegate.contracts.store import FOLDER, Contracts

    found = Contracts(app.folder(), app.settings()).all()
    if app.json:
        echo_json(
            [
                {
                    "table": str(table),
                    "file": one.file,
                    "owner": one.contract.owner,
                    "freshness": one.contract.freshness,
                    "columns": len(one.contract.columns),
                    "checks": [str(each) for each in one.checks],
                }
                for table, one in found.items()
            ]
        )
        return
    rows = (
        (str(table), one.file, count(len(one.contract.columns)), count(len(one.checks)), one.contract.owner or "")
        for table, one in found.items()
    )
    columns = ("table", "file", "columns", "checks", "owner")
    show_rows(columns, rows, right=("columns", "checks"), empty=f"No contracts in {FOLDER}/.")


@check.command("schema", examples=("lakegate check schema > contract.schema.json",), formats=())
def schema(app: App) -> None:
    """Print the JSON Schema of contracts, for editors.

    It includes the checks that are installed here. Editors with a YAML language server use it for files that start with
    "# yaml-language-server: $schema=contract.schema.json".
    """
    del app
    click.echo(_schema_text())


@check.command(
    "init",
    examples=(
        "lakegate check init nyc.trips",
        "lakegate check init january/*.parquet --table nyc.trips",
        "lakegate check init trips.csv --stdout",
    ),
    formats=(),
)
@click.argument("sources", metavar="TABLE|FILE...", nargs=-1, required=True)
@click.option("--table", metavar="TABLE", help="Table that the files are for. Default: default.NAME-OF-THE-FILE.")
@format_option("file_format")
@click.option("--stdout", "prints", is_flag=True, help="Print the contract instead of writing it to contracts/.")
def init(
    app: App, /, *, sources: tuple[str, ...], table: str | None, file_format: FileFormat | None, prints: bool
) -> None:
    """Propose a contract for TABLE, or for FILEs, from all their rows.

    Proposes types, NULLs, lower limits, accepted values and keys, each with a comment on what the data showed. All
    rows that were read pass it. Writes contracts/TABLE.yaml, and beside it the JSON Schema for editors. Never
    overwrites a contract.
    """
    from lakegate.contracts.store import FOLDER

    files = sources if table is not None or len(sources) > 1 or _is_file(sources[0]) else None
    name = table or (_table_for(sources[0]) if files else sources[0])
    if files is None and not app.is_in_project():
        raise InputError(
            f"There's no file {name}, and no lakegate project here that could have a table of this name.",
            hint=f"Pass files: lakegate check init FILES --table {name}",
        )
    folder = app.folder() / FOLDER
    path = folder / f"{name}.yaml"
    if not prints:
        _require_free(app, name, path)
    with _lake(app) as lake:
        text = lake.contracts.propose(name, files, format=file_format, schema=None if prints else _SCHEMA)
    if prints:
        click.echo(text, nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SCHEMA).write_text(_schema_text() + "\n", encoding="utf-8")
    _write_new(path, text)
    click.echo(str(path))
    again = sources if files else ("FILE",)
    next_commands(
        ("Review it, and remove what holds only by chance", str(path)),
        ("Try it on files", app.command("check", "test", name, *again)),
    )


def _is_file(source: str) -> bool:
    from lakegate.storage.objects import is_remote

    return is_remote(source) or any(mark in source for mark in "/*?") or Path(source).exists()


def _table_for(source: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", Path(source).name.partition(".")[0]).strip("_") or "table"
    return f"default.{name if name[0].isalpha() else f't_{name}'}"


def _require_free(app: App, table: str, path: Path) -> None:
    """Refuse to write a contract for a table that has one, or a section in the settings."""
    hint = "To print the contract instead: --stdout"
    if path.exists() or path.with_suffix(".yml").exists():
        raise AlreadyExistsError(f"{table} already has a contract: {path}", hint=hint, table=table)
    if table in app.settings().tables:
        raise AlreadyExistsError(
            f'{table} has a section [tables."{table}"] in lakegate.toml, so it can\'t have a contract as well.',
            hint=f"Remove the section first, and move its checks into the contract. {hint}",
            table=table,
        )


def _write_new(path: Path, text: str) -> None:
    """Write a contract, unless somebody has written one since :func:`_require_free` looked."""
    file = path.open("x", encoding="utf-8")
    try:
        with file:
            file.write(text)
    except BaseException:  # such as a full disk: half a contract would stop every command
        path.unlink(missing_ok=True)
        raise


@check.command(
    "import",
    examples=(
        "lakegate check import orders.odcs.yaml",
        "lakegate check import models/schema.yml --namespace shop",
        "lakegate check import orders.odcs.yaml --stdout",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--namespace", metavar="NAME", help="Namespace of the tables. Default: the file's, else default.")
@click.option("--stdout", "prints", is_flag=True, help="Print the contracts instead of writing them to contracts/.")
@click.option("--allow-lost", is_flag=True, help="Write the contracts without the checks that can't be translated.")
def import_contracts(app: App, /, *, file: Path, namespace: str | None, prints: bool, allow_lost: bool) -> None:
    """Convert an ODCS contract or a dbt properties file into contracts.

    FILE is an ODCS contract (3.0 to 3.2), or a properties file of dbt (schema.yml). Writes one contract per table.
    Anything that can't be translated is listed with its line, and in a comment in the contract. If that includes a
    check, exits with 1 and writes nothing, unless --allow-lost is given. Never overwrites a contract.
    """
    from lakegate.contracts.draft import sorted_notes
    from lakegate.contracts.interchange import read_foreign
    from lakegate.contracts.store import FOLDER

    drafts = read_foreign(file, namespace=namespace)
    texts = [draft.text(file.name) for draft in drafts]
    folder = app.folder() / FOLDER
    paths = [folder / f"{draft.table}.yaml" for draft in drafts]
    notes = {one for draft in drafts for one in draft.untranslated}
    lost = sorted_notes(one for one in notes if one.is_check)
    refuses = bool(lost) and not allow_lost
    writes = not prints and not refuses
    if not prints:
        for draft, path in zip(drafts, paths, strict=True):
            _require_free(app, draft.table, path)
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            _write_new(path, text)
    if app.json:
        echo_json(
            [
                {
                    "table": draft.table,
                    "file": str(path) if writes else None,
                    "contract": text,
                    "untranslated": [asdict(one) for one in draft.untranslated],
                }
                for draft, path, text in zip(drafts, paths, texts, strict=True)
            ]
        )
    elif prints:
        click.echo("---\n".join(texts), nl=False)
    elif writes:
        click.echo("\n".join(map(str, paths)))
    if not app.json:
        _show_notes(f"Checks lost from {file}:", lost)
        _show_notes("Not translated, but not a check:", sorted_notes(one for one in notes if not one.is_check))
    if refuses:
        command = f"{app.command_without_dry_run()} --allow-lost"
        click.echo(f"\nTo import the rest without {counted(len(lost), 'check')}:\n  {command}", err=True)
        raise click.exceptions.Exit(ExitCode.AUDIT_FAILED)


def _show_notes(title: str, notes: list[str]) -> None:
    width = width_or(0) or max(map(len, notes), default=0) + 2
    lines = [fill(one_line(note), width, initial_indent="  ", subsequent_indent="    ") for note in notes]
    if notes:
        click.echo("\n".join(("", title, *lines)), err=True)


@check.command(
    "export",
    examples=("lakegate check export nyc.trips > trips.odcs.yaml", "lakegate check export proposal.yaml"),
    formats=(),
)
@click.argument("contract", metavar="CONTRACT|TABLE")
def export(app: App, /, *, contract: str) -> None:
    """Print a contract in ODCS 3.1, the Open Data Contract Standard.

    Checks become rules of type custom for the engine lakegate. ODCS has no words for how a table is loaded,
    partitioned by transforms and maintained.
    """
    from lakegate.contracts.odcs import write_odcs
    from lakegate.contracts.store import Contracts

    click.echo(write_odcs(Contracts(app.folder(), app.settings()).named(contract)), nl=False)


@check.command(
    "test",
    examples=(
        "lakegate check test nyc.trips january/*.parquet",
        "lakegate check test contracts/nyc.trips.yaml sample.csv -o json",
    ),
)
@click.argument("contract", metavar="CONTRACT|TABLE")
@click.argument("files", nargs=-1, required=True)
@format_option("file_format")
def test(app: App, /, *, contract: str, files: tuple[str, ...], file_format: FileFormat | None) -> None:
    """Test a contract on FILES. Exits with 1 if an ingest of them would be rejected.

    Writes nothing and needs no lake: outside a project, it starts Spark just for this. If the table exists, its columns
    count, too. As in an ingest, rows that would be quarantined are counted, and the other checks run on the rest.
    Checks that compare with other tables aren't run, but listed.
    """
    from lakegate.contracts.store import Contracts

    if not app.is_in_project():
        # The temporary lake has none; `check init` wrote it below this folder.
        contract = Contracts(app.folder(), app.settings()).named(contract).file
    with _lake(app) as lake:
        found = lake.contracts.test(contract, files, format=file_format)
    report = found.report
    if app.json:
        untried = [one.model_dump() for one in found.untried]
        payload = {key: value for key, value in report_payload(report).items() if key not in ("run_id", "branch")}
        echo_json({"contract": found.contract, **payload, "over_limit": found.over_limit, "untried": untried})
    else:
        verdict = "[bold green]passed[/]" if found.passed else "[bold red]failed[/]"
        say(f"{verdict}  {counted(report.rows, 'row')}, by [bold]{safe(found.contract)}[/]")
        say_wrapped(f"[dim]{safe(summary(report))}, {duration(report.seconds)}[/]")
        show_all(report)
        show_notes(report)
        show_evidence([*report.failures, *report.warnings])
        show_quarantined(report.quarantined)
        if found.over_limit:
            say("", f"[bold red]{safe(found.over_limit)}[/]")
        if found.untried:
            say("", "Not run without the lake:")
            say(*(f"  {safe(one.check)}: {safe(one.reason)}" for one in found.untried))
    raise click.exceptions.Exit(ExitCode.OK if found.passed else ExitCode.AUDIT_FAILED)


@contextmanager
def _lake(app: App) -> Iterator[Lake]:
    """Open the project's lake or, outside a project, a temporary one, of which only Spark is used."""
    if app.is_in_project():
        with app.lake() as lake:
            yield lake
        return
    from lakegate.config import HOME_NAME

    with tempfile.TemporaryDirectory(prefix="lakegate-") as folder:
        app.home = Path(folder)
        (app.home / HOME_NAME).mkdir(mode=0o700)  # else it would be announced as a new project
        try:
            with app.lake() as lake:
                yield lake
        finally:
            app.stack().down()
            app.home = None  # what is printed from now on mustn't name it


def _schema_text() -> str:
    from lakegate.contracts.model import contract_schema

    return json.dumps(contract_schema(), indent=2, ensure_ascii=False)
