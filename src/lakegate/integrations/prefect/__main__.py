"""``python -m lakegate.integrations.prefect``: one flow run now, or a process that serves the deployments."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.core import augment_usage_errors

from lakegate.errors import ExitCode, LakegateError, OutcomeUnknownError, RetryableError
from lakegate.integrations.prefect import require_prefect
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.words import parse_duration

_PROGRAM = "python -m lakegate.integrations.prefect"
_UNNAMEABLE = re.compile("[/%&<>]")
_INTERNAL = 70
_EXIT_CODES = {"published": ExitCode.OK, "skipped": ExitCode.OK}
_EXAMPLES = f"""\b
Examples:
  {_PROGRAM} --table_name trips --branch_name wap/monday --s3_path s3://bucket/monday/ --namespace nyc
  {_PROGRAM} --table-name nyc.trips --s3-path monday/ --check 'not_null(passenger_count)'
  {_PROGRAM} serve --table nyc.trips --every 5m landing/
  {_PROGRAM} announce nyc.trips s3://bucket/monday/1.parquet

Exit codes: 0 published (or nothing to publish), 1 audit failed, 2 invalid input, 3 try again, 4 outcome unknown,
70 internal error, 130 interrupted or cancelled."""


def _checked(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    from lakegate.checks import parse_checks

    for text in value:
        parse_checks(text)
    return list(value)


_home = click.option(
    "--home", type=click.Path(exists=True, file_okay=False, resolve_path=True), help="The project's folder."
)
_checks = click.option(
    "--check", "-c", "checks", multiple=True, callback=_checked, metavar="CHECK", help="A check to pass. Repeatable."
)
_on_failure = click.option(
    "--on-failure",
    "--on_failure",
    type=click.Choice(["keep", "drop"]),
    help="Keep or drop the branch of a rejected batch.",
)


def _table(value: str) -> str:
    return str(TableIdentifier.parse(value))


def _full_name(table: str, namespace: str | None) -> str:
    if namespace is None or table.startswith(f"{namespace}."):
        return _table(table)
    if "." in table:
        raise click.UsageError(f"--table_name '{table}' isn't in --namespace '{namespace}'. Name the namespace once.")
    return _table(f"{namespace}.{table}")


def _seconds(value: str) -> float:
    seconds = parse_duration(value).total_seconds()
    if seconds == 0.0:
        raise click.UsageError("--every must be greater than zero.")
    return seconds


def _name(value: str) -> str:
    if _UNNAMEABLE.search(value):
        raise click.UsageError(f"--name '{value}' can't name a deployment: / % & < > aren't allowed.")
    return value


def _path(value: str) -> str:
    if not value:
        raise click.UsageError("PATH is empty.")
    return value


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``. Errors name this command, which click forgets if an option's value is missing."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)


@click.group(invoke_without_command=True, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--table_name", "--table-name", "table", metavar="TABLE", help="namespace.table, or table.")
@click.option("--namespace", metavar="NAME", help="Namespace of the table, if --table_name has none.")
@click.option("--branch_name", "--branch-name", "branch", type=validate_ref_name, metavar="NAME", help="New branch.")
@click.option("--s3_path", "--s3-path", "path", metavar="PATH", help="File, folder or pattern, local or in a store.")
@_checks
@_on_failure
@_home
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@click.pass_context
def cli(
    context: click.Context,
    /,
    *,
    table: str | None,
    namespace: str | None,
    path: str | None,
    output: str,
    **given: Any,
) -> None:
    """Write files to a branch, audit them there, and publish them to main: one flow run, now, in this process."""
    if context.invoked_subcommand is not None:
        return
    if table is None or path is None:
        missing = " and ".join(name for name, value in (("--table_name", table), ("--s3_path", path)) if not value)
        raise click.UsageError(f"Pass {missing}, or a command.")
    context.exit(_run_now({**given, "table": _full_name(table, namespace), "path": path}, output))


@cli.command(cls=_Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--table", type=_table, metavar="TABLE", help="Table of all files, instead of --route.")
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="PATTERN",
    help="landing/{namespace}/{table}/*. Repeatable.",
)
@click.option(
    "--every",
    "interval_s",
    default="5m",
    type=_seconds,
    metavar="DURATION",
    help="How often to scan.",
)
@click.option("--name", default="lakegate", show_default=True, type=_name, help="Name of the two deployments.")
@_checks
@_on_failure
@_home
def serve(*, paths: Sequence[str], interval_s: float, name: str, **given: Any) -> None:
    """Ingest new files in PATH on a schedule, and each file that an event announces, until stopped.

    Creates two deployments: lakegate-intake/NAME looks for new files, by default every five minutes; lakegate-wap/NAME
    ingests the files that `announce` or an event 'lakegate.file.landed' names.
    """
    from lakegate.loading.routes import Routes, require_there

    if (given["table"] is None) == (not given["routes"]):
        raise click.UsageError("Pass either --table, which all files go to, or --route.")
    Routes(given["routes"])
    require_there(paths)
    _require_server()
    from lakegate.integrations.prefect.intake import serve_flows

    given = {**given, "routes": list(given["routes"]) or None}
    serve_flows(paths, name=name, interval_s=interval_s, **given)


@cli.command(cls=_Command)
@click.argument("table", type=_table)
@click.argument("path", type=_path)
def announce(*, table: str, path: str) -> None:
    """Notify Prefect that the file PATH for TABLE has landed."""
    _require_server()
    from lakegate.integrations.prefect.intake import LANDED, announce

    announce(table, path)
    click.echo(f"{LANDED}: {table} {path}")


def _run_now(parameters: dict[str, Any], output: str) -> int:
    _require_server()
    import httpx

    from lakegate.integrations.prefect.flows import recording_error, run_id_of, wap_flow

    try:
        with recording_error() as errors:
            state: Any = wap_flow(**parameters, return_state=True)
    except httpx.HTTPError as error:
        raise OutcomeUnknownError(
            f"Prefect's server went away while the flow was running: {str(error) or type(error).__name__}.",
            hint="To see how far the run got: lakegate runs --limit 3",
        ) from error
    flow_run_id = str(state.state_details.flow_run_id)
    name = str(state.name).lower()
    if output == "json":
        facts = {"run_id": run_id_of(flow_run_id), "flow_run_id": flow_run_id, "table": parameters["table"]}
        click.echo(json.dumps({**facts, "status": name, "message": state.message}, ensure_ascii=False, indent=2))
    if name in _EXIT_CODES:
        if output == "table":
            click.echo(f"{state.message} Run {run_id_of(flow_run_id)}.")
        return _EXIT_CODES[name]
    result = errors[-1] if errors else state.result(raise_on_failure=False)
    raise result if isinstance(result, BaseException) else LakegateError(str(state.message or state.name))


def _require_server() -> None:
    """Make sure that Prefect is installed and its server, if one is configured, answers.

    If none is configured, Prefect starts its own.
    """
    require_prefect()
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    if url is None:
        return
    with get_client(sync_client=True) as client:
        problem = client.api_healthcheck()
    if problem is not None:
        raise RetryableError(
            f"Prefect's server at {url} doesn't answer; nothing was started.",
            hint="Start it with prefect server start, or check PREFECT_API_URL.",
        )


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit."""
    try:
        cli.main(prog_name=_PROGRAM, standalone_mode=False)
    except LakegateError as error:
        _say(error.message, error.hint)
        code = int(error.exit_code)
        if error.code == OutcomeUnknownError.code:
            # Otherwise Prefect would spend minutes trying to report task states to a server that's gone.
            sys.stderr.flush()
            os._exit(code)
        sys.exit(code)
    except click.UsageError as error:
        path = _PROGRAM if error.ctx is None else error.ctx.command_path
        _say(error.format_message(), f"For help, run: {path} --help")
        sys.exit(int(ExitCode.USAGE))
    except (click.Abort, KeyboardInterrupt):
        _say("Interrupted.", "To see how far a run got: lakegate runs")
        sys.exit(int(ExitCode.INTERRUPTED))
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except Exception:  # noqa: BLE001 - Python's own exit code, 1, would mean that the audit failed
        traceback.print_exc()
        sys.exit(_INTERNAL)
    sys.exit(0)


def _say(message: str, hint: str | None) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint:  {hint}", err=True)


if __name__ == "__main__":
    # By default, hide the log of the server that Prefect starts for itself.
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "WARNING")
    main()
