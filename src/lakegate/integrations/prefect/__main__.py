"""``python -m lakegate.integrations.prefect``: one flow run now, or a process that serves the deployments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from lakegate.errors import ExitCode, LakegateError, OutcomeUnknownError, RetryableError
from lakegate.integrations.command_line import full_name, run_command
from lakegate.integrations.prefect import require_prefect

_PROGRAM = "python -m lakegate.integrations.prefect"
_CONCURRENCY = 4
"""Maximum number of concurrent flow runs in a serving process."""
_EXIT_CODES = {"published": ExitCode.OK, "skipped": ExitCode.OK, "rejected": ExitCode.AUDIT_FAILED}
_DEFAULTS = {
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "DO_NOT_TRACK": "1",
}
"""Hide the log of the server that Prefect starts for itself, with tracebacks about its locked database, and what it
says about telemetry. On a busy machine, that server takes longer to start than Prefect waits."""
_EXAMPLES = f"""\b
Examples:
  {_PROGRAM} --table_name trips --branch_name wap/monday --s3_path s3://bucket/monday/ --namespace nyc
  {_PROGRAM} --table-name nyc.trips --s3-path monday/ --check 'not_null(passenger_count)'
  {_PROGRAM} serve --table nyc.trips --every 5m landing/
  {_PROGRAM} announce nyc.trips s3://bucket/monday/1.parquet

Exit codes: 0 published (or nothing to publish), 1 audit failed, 2 invalid input, 3 try again, 4 outcome unknown,
70 internal error, 130 interrupted or cancelled."""

_home = click.option(
    "--home", type=click.Path(exists=True, file_okay=False, resolve_path=True), help="The project's folder."
)
_checks = click.option("--check", "-c", "checks", multiple=True, metavar="CHECK", help="A check to pass. Repeatable.")
_on_failure = click.option(
    "--on-failure",
    "--on_failure",
    type=click.Choice(["keep", "drop"]),
    help="Keep or drop the branch of a rejected batch.",
)


@click.group(invoke_without_command=True, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--table_name", "--table-name", "table", metavar="TABLE", help="namespace.table, or table.")
@click.option("--namespace", metavar="NAME", help="Namespace of the table, if --table_name has none.")
@click.option("--branch_name", "--branch-name", "branch", metavar="NAME", help="New branch.")
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
    checks: Sequence[str],
    output: str,
    **parameters: Any,
) -> int:
    """Write files to a branch, audit them there, and publish them to main: one flow run, now, in this process."""
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    if table is None or path is None:
        raise click.UsageError("Pass --table_name and --s3_path, or a command.")
    name = full_name(table, namespace)
    _require_server()
    import httpx

    from lakegate.integrations.prefect.flows import run_id_of, wap_flow

    try:
        state: Any = wap_flow(name, path, checks=list(checks), **parameters, return_state=True)
    except httpx.HTTPError as error:
        raise OutcomeUnknownError(
            f"Prefect's server went away while the flow was running: {str(error) or type(error).__name__}.",
            hint="To see how far the run got: lakegate runs --limit 3",
        ) from error
    flow_run_id = str(state.state_details.flow_run_id)
    run_id, status = run_id_of(flow_run_id), str(state.name).lower()
    if output == "json":
        facts = {"run_id": run_id, "flow_run_id": flow_run_id, "table": name, "status": status}
        click.echo(json.dumps({**facts, "message": state.message}, ensure_ascii=False, indent=2))
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    if status not in _EXIT_CODES:
        raise LakegateError(str(state.message or state.name))
    if output == "table":
        click.echo(f"{state.message} Run {run_id}.")
    return _EXIT_CODES[status]


@cli.command
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--table", metavar="TABLE", help="Table of all files, instead of --route.")
@click.option("--route", "routes", multiple=True, metavar="PATTERN", help="landing/{namespace}/{table}/*. Repeatable.")
@click.option("--every", default="5m", metavar="DURATION", help="How often to scan.")
@click.option("--name", default="lakegate", show_default=True, help="Name of the two deployments.")
@_checks
@_on_failure
@_home
def serve(
    *, paths: Sequence[str], table: str | None, routes: Sequence[str], every: str, checks: Sequence[str], **given: Any
) -> None:
    """Ingest new files in PATH on a schedule, and each file that an event announces, until stopped.

    Creates two deployments: lakegate-intake/NAME looks for new files, by default every five minutes; lakegate-wap/NAME
    ingests the files that `announce` or an event 'lakegate.file.landed' names.
    """
    from lakegate.checks import parse_checks
    from lakegate.loading.routes import Routes, require_there
    from lakegate.model.words import parse_duration

    if (table is None) == (not routes):
        raise click.UsageError("Pass either --table, which all files go to, or --route.")
    interval_s = parse_duration(every).total_seconds()
    if interval_s == 0.0:
        raise click.UsageError("--every must be greater than zero.")
    # What every scan would fail on.
    Routes(routes)
    require_there(paths)
    for text in checks:
        parse_checks(text)
    _require_server()
    from prefect import serve as serve_deployments
    from prefect.exceptions import InvalidNameError

    from lakegate.integrations.prefect.intake import deployments

    wanted: dict[str, Any] = {**given, "table": table, "routes": list(routes) or None, "checks": list(checks)}
    try:
        made = deployments(paths, interval_s=interval_s, **wanted)
    except InvalidNameError as error:
        raise click.UsageError(f"--name '{given['name']}': {error}") from None
    serve_deployments(*made, limit=_CONCURRENCY)


@cli.command
@click.argument("table")
@click.argument("path")
def announce(*, table: str, path: str) -> None:
    """Notify Prefect that the file PATH for TABLE has landed."""
    _require_server()
    from lakegate.integrations.prefect.intake import LANDED, announce

    announce(table, path)
    click.echo(f"{LANDED}: {table} {path}")


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


if __name__ == "__main__":
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    code = run_command(cli, _PROGRAM)
    if code == ExitCode.OUTCOME_UNKNOWN:
        # Otherwise Prefect would spend minutes trying to report task states to a server that's gone.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
