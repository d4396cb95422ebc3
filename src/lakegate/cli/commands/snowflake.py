"""Let Snowflake read the published tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import complete_tables, require_consent, yes_option
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, show_rows
from lakegate.errors import ExitCode, LakegateError, NotFoundError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import counted, moment
from lakegate.progress import one_line

if TYPE_CHECKING:
    from lakegate.downstream.snowflake.plan import LakeTable, PlanStep
    from lakegate.downstream.snowflake.setup import AccountStatus, SnowflakeSetup
    from lakegate.downstream.snowflake.storage import RequiredPermissions
    from lakegate.lake import Lake
    from lakegate.model.downstream import DownstreamStatus

_STYLES = {"create": "green", "replace": "yellow", "drop": "red", "refuse": "bold red", "none": "dim"}
_WORDS = {"none": "exists", "refuse": "can't create"}
_SENT = {"sent": "refreshed"}
_RESULT_STYLES = {"failed": "red", "waiting": "yellow"}
_STATE_STYLES = {"behind": "yellow", "missing": "yellow", "taken": "bold red", "unknown": "yellow"}


_name_option = click.option(
    "--name", metavar="NAME", help="Account to use, if the settings have several: NAME of [downstream.NAME]."
)


@group(
    "snowflake",
    examples=(
        "lakegate snowflake plan",
        "lakegate snowflake apply",
        "lakegate snowflake status",
        "lakegate snowflake refresh nyc.trips",
    ),
)
def snowflake() -> None:
    """Let a Snowflake account read the published tables, as Iceberg tables that are refreshed after each publish.

    Needs a section [downstream.snowflake] in the settings, and tables in an object store. Copies nothing: Snowflake
    reads the lake's files, and can't write them.
    """


@snowflake.command(
    "plan",
    formats=("table", "json", "sql"),
    examples=("lakegate snowflake plan", "lakegate snowflake plan --offline -o sql > snowflake.sql"),
)
@_name_option
@click.option("--offline", is_flag=True, help="Don't connect, and plan for an account that has nothing yet.")
def plan(app: App, /, *, name: str | None, offline: bool) -> None:
    """Show what the account lacks, and the SQL to create it. Changes nothing.

    With `-o sql`, prints a script for an administrator, which also grants lakegate's role the right to use what it
    creates.
    """
    with _opened(app, name) as (_, setup, tables):
        if offline:
            steps = setup.plan(tables, None)
        else:
            with setup.session() as session:
                steps = setup.plan(tables, session)
    if app.output == "sql":
        click.echo(setup.script(steps))
    elif app.json:
        echo_json(steps)
    else:
        _show_steps(steps)
        if any(step.sql for step in steps):
            next_commands(("Do it", app.command("snowflake", "apply", *_named(name))))


@snowflake.command("apply", examples=("lakegate snowflake apply", "lakegate snowflake apply --yes -o json"))
@_name_option
@yes_option
def apply(app: App, /, *, name: str | None, yes: bool) -> None:
    """Create what the account lacks to read the published tables.

    That's the external volume, catalog integration, database, schemas, tables and grants. Shows the SQL and asks for
    confirmation. After creating the volume, prints the permissions that the volume needs, and stops. Grant them, and
    run the command again: it creates only what's missing. Exits with 3 if it stopped, and with 2 if something couldn't
    be created.
    """
    with _opened(app, name) as (lake, setup, tables), setup.session() as session:
        steps = setup.plan(tables, session)
        to_do = [step for step in steps if step.sql]
        if to_do:
            _announce(to_do)
            require_consent(f"Run {counted(len(to_do), 'statement')} on {setup.section.account}?", yes=yes)
        results = list(setup.apply(to_do, session))
        errors = [error for _, error in results if error is not None]
        made_volume = any(step.kind == "external volume" and not error for step, error in results)
        problem = setup.volume_problem(session) if made_volume else None
        rights = setup.rights(session) if made_volume or errors else None
        made = {step.name for step, error in results if step.kind == "table" and step.action != "drop" and not error}
        new = [str(table.table) for table in tables if setup.name_of(table) in made]
        # This records in the journal what Snowflake shows: gc keeps those files, and publishes are sent there.
        tried = lake.downstream_send(setup.name, new) if new else ()
    refused = [step for step in steps if step.action == "refuse"]
    left = len(to_do) - len(results) + len(errors)
    again = app.command("snowflake", "apply", *_named(name))
    if app.json:
        facts = {"left": left, "volume_problem": problem, "rights": _rights_payload(rights)}
        echo_json({**_applied_payload(results, refused), **facts})
    else:
        _show_applied(results, left, refused)
        if problem is not None and rights is not None:
            say("", f"[yellow]Snowflake can't read the files yet[/]  {safe(problem)}")
        if rights is not None:
            _show_rights(rights)
        if left:
            next_commands(("Then create the rest", again))
    for one in tried:
        if one.state != "sent":
            click.echo(one_line(f"{', '.join(one.tables)}: {one.reason}"), err=True)
    if errors or refused:
        raise click.exceptions.Exit(ExitCode.USAGE)
    raise click.exceptions.Exit(ExitCode.RETRYABLE if left else ExitCode.OK)


@snowflake.command("status", examples=("lakegate snowflake status", "lakegate snowflake status -o json"))
@_name_option
def status(app: App, /, *, name: str | None) -> None:
    """Sign in to Snowflake, and show which tables are behind main.

    Also shows whether Snowflake can read the lake's files.
    """
    with _opened(app, name) as (lake, setup, tables), setup.session() as session:
        found = setup.status(tables, session)
        rights = None if found.readable else setup.rights(session)
        outbox = next((one for one in lake.downstream_status() if one.name == setup.name), None)
    if app.json:
        echo_json({**found.model_dump(mode="json"), "rights": _rights_payload(rights), "outbox": outbox})
        return
    _show_status(found, outbox)
    if rights is not None and found.readable is not None:
        _show_rights(rights)
    commands = []
    if found.readable is None or any(table.state in {"missing", "taken"} for table in found.tables):
        commands.append(("Show what is missing", app.command("snowflake", "plan", *_named(name))))
    if any(table.state == "behind" for table in found.tables) or (outbox and (outbox.pending or outbox.failed)):
        commands.append(("Catch up", app.command("snowflake", "refresh", *_named(name))))
    next_commands(*commands)


@snowflake.command(
    "refresh",
    examples=("lakegate snowflake refresh", "lakegate snowflake refresh nyc.trips --recreate"),
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=complete_tables)
@_name_option
@click.option("--recreate", is_flag=True, help="Recreate the tables instead of refreshing them, each atomically.")
def refresh(app: App, /, *, tables: Sequence[str], name: str | None, recreate: bool) -> None:
    """Refresh TABLEs, or all tables, to the state of main. Creates those that Snowflake lacks.

    Publishing does this automatically. Run it if Snowflake was unreachable for long, or refused a refresh: it also
    retries what's queued for Snowflake. Exits with 3 if a table couldn't be refreshed.
    """
    with _opened(app, name) as (lake, setup, known):
        chosen = _chosen(known, tables) if tables else known
        if recreate:
            with setup.session() as session:
                setup.recreate(chosen, session)
        # Through the outbox, so that another process's publish comes before or after this, and gc knows of it.
        tried = lake.downstream_send(setup.name, [str(table.table) for table in chosen]) if chosen else ()
        deliveries = {table: one for one in tried for table in one.tables}
    results = []
    for lake_table in chosen:
        one = deliveries.get(str(lake_table.table))
        state = "waiting" if one is None or one.state == "pending" else one.state
        results.append((state, str(lake_table.table), one.reason if one else None))
    if app.json:
        echo_json([{"table": table, "state": state, "reason": reason} for state, table, reason in results])
    else:
        rows = (
            Styled((_SENT.get(state, state), table, reason or ""), _RESULT_STYLES.get(state))
            for state, table, reason in results
        )
        show_rows(("", "table", "why"), rows, empty="No tables on main are sent there.")
    if any(state != "sent" for state, _, _ in results):
        click.echo(f"To see what is queued for Snowflake: {app.command('downstream', 'status', setup.name)}", err=True)
        raise click.exceptions.Exit(ExitCode.RETRYABLE)


@contextmanager
def _opened(app: App, name: str | None) -> Iterator[tuple[Lake, SnowflakeSetup, Sequence[LakeTable]]]:
    """Open the lake. Yield it with the account's setup and the tables that are sent there."""
    from lakegate.downstream.snowflake.setup import SnowflakeSetup, accounts

    with app.lake() as lake:
        if name is None:
            found = accounts(lake.settings)
            if len(found) > 1:
                raise click.UsageError(
                    f"The settings have several Snowflake accounts. Pass --name: {', '.join(found)}."
                )
            name = found[0] if found else "snowflake"
        setup = SnowflakeSetup(name, lake.settings, lake.warehouse)
        yield lake, setup, setup.select_tables(lake.tables())


def _chosen(known: Sequence[LakeTable], names: Iterable[str]) -> list[LakeTable]:
    by_name = {table.table: table for table in known}
    chosen = []
    for name in names:
        table = by_name.get(TableIdentifier.parse(name))
        if table is None:
            raise NotFoundError(
                f"Table {name} isn't on main, or the settings don't send it to Snowflake.",
                hint="To see the tables: lakegate snowflake status",
                table=name,
            )
        chosen.append(table)
    return chosen


def _named(name: str | None) -> tuple[str, ...]:
    return () if name is None else ("--name", name)


def _announce(steps: Iterable[PlanStep]) -> None:
    """Print the SQL on standard error, before asking for confirmation."""
    for step in steps:
        if step.reason:
            click.echo(f"-- {one_line(step.reason)}", err=True)
        lines = (step.sql or "").split("\n")
        click.echo("\n".join(one_line(line) for line in lines) + ";\n", err=True)


def _show_steps(steps: Sequence[PlanStep]) -> None:
    to_do = [step for step in steps if step.sql]
    refused = [step for step in steps if step.action == "refuse"]
    existing = sum(step.action == "none" for step in steps)
    if not to_do and not refused:
        say(f"[bold green]up to date[/]  all {counted(existing, 'object')} exist; nothing would change")
    else:
        say(f"[bold]plan[/]  {counted(len(to_do), 'statement')}, {existing} exist already; nothing was changed")
    rows = (
        Styled((_WORDS.get(step.action, step.action), step.kind, step.name, step.reason or ""), _STYLES[step.action])
        for step in steps
    )
    show_rows(("", "kind", "name", "why"), rows)
    if to_do:
        sql = "\n\n".join(f"{step.sql};" for step in to_do)
        say("", "[bold]SQL[/]", *map(safe, sql.split("\n")))


def _applied_payload(
    results: Sequence[tuple[PlanStep, LakegateError | None]], refused: Sequence[PlanStep]
) -> dict[str, Any]:
    failed = [(step, error) for step, error in results if error is not None]
    return {
        "done": [step for step, error in results if error is None],
        "failed": [{**step.model_dump(mode="json"), "error": error.to_dict()} for step, error in failed],
        "refused": refused,
    }


def _show_applied(
    results: Sequence[tuple[PlanStep, LakegateError | None]], left: int, refused: Sequence[PlanStep]
) -> None:
    if not results and not refused:
        say("[bold green]up to date[/]  nothing was missing")
        return
    done = sum(error is None for _, error in results)
    say(f"[bold]applied[/]  {counted(done, 'statement')}" + (f"; {left} left" if left else ""))
    rows = [
        Styled(("failed", step.kind, step.name, error.message), "red")
        if error is not None
        else ("done", step.kind, step.name, step.reason or "")
        for step, error in results
    ]
    rows += [Styled((_WORDS["refuse"], step.kind, step.name, step.reason or ""), "bold red") for step in refused]
    show_rows(("", "kind", "name", "why"), rows)
    for hint in dict.fromkeys(error.hint for _, error in results if error is not None and error.hint):
        say(f"  [cyan]{safe(hint)}[/]")


def _rights_payload(rights: RequiredPermissions | None) -> dict[str, Any] | None:
    return None if rights is None else {"what": rights.what, "documents": rights.documents}


def _show_rights(rights: RequiredPermissions) -> None:
    say("", "[bold]Permissions that the external volume needs[/]")
    for name, document in rights.documents.items():
        say(f"  [dim]{safe(name)}[/]")
        say(*(f"    {safe(line)}" for line in json.dumps(document, indent=2).splitlines()))
    say(*(f"  [cyan]{safe(line)}[/]" for line in rights.what))


def _show_status(found: AccountStatus, outbox: DownstreamStatus | None) -> None:
    readable = {True: "[green]Snowflake can read it[/]", False: "[red]Snowflake can't read it[/]"}
    volume = "[yellow]doesn't exist[/]" if found.readable is None else readable[found.readable]
    facts = {
        "account": safe(f"{found.account}, Snowflake {found.version}"),
        "signed in": safe(f"{found.user}, role {found.role}, warehouse {found.warehouse}"),
        "volume": f"{safe(found.volume)}: {volume}" + (f" ({safe(found.reason)})" if found.reason else ""),
    }
    if outbox is not None:
        facts["sent"] = safe(f"{counted(outbox.sent, 'event')}, last {moment(outbox.last_sent_at) or 'never'}")
        if outbox.pending or outbox.failed:
            waiting = f"{outbox.pending} queued, {outbox.failed} given up since {moment(outbox.oldest)}"
            facts["waiting"] = f"[yellow]{safe(f'{waiting}: {outbox.reason}' if outbox.reason else waiting)}[/]"
    say(*(f"[dim]{name:<10}[/] {value}" for name, value in facts.items()), "")
    rows = (
        Styled((one.state, one.table, one.snowflake, one.reason or ""), _STATE_STYLES.get(one.state))
        for one in found.tables
    )
    show_rows(("state", "table", "in Snowflake", "why"), rows, empty="No tables on main are sent there.")
    say("", *(f"[dim]{safe(note)}[/]" for note in found.notes))
