"""``python -m lakegate.integrations.dbos``: one run, or a worker with a queue and a schedule, as DBOS workflows."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lakegate.config import find_home, load_settings
from lakegate.errors import ConfigurationError, ExitCode
from lakegate.integrations import require_extra
from lakegate.integrations.command_line import full_name, run_command
from lakegate.lake import connect
from lakegate.model.identifiers import validate_run_id
from lakegate.model.run import new_run_id

if TYPE_CHECKING:
    from lakegate.integrations.dbos.configuration import DbosConfiguration
    from lakegate.integrations.dbos.workflows import Order, Outcome

PROGRAM = "python -m lakegate.integrations.dbos"
_OFF = "off"
_ENDINGS = {"published": ExitCode.OK, "skipped": ExitCode.OK, "rejected": ExitCode.AUDIT_FAILED}
_VARIABLES = ("table_name", "namespace", "s3_path", "branch_name", "run_id")
_EPILOG = f"""\b
Examples:
  {PROGRAM} --table_name nyc.trips --s3_path 'january/*.parquet'
  {PROGRAM} --table_name nyc.trips --s3_path january.csv --run_id january
  TABLE_NAME=trips NAMESPACE=nyc S3_PATH=s3://bucket/january/ {PROGRAM}
  {PROGRAM} enqueue --table_name nyc.trips --s3_path january.csv
  {PROGRAM} serve --table_name nyc.trips --s3_path landing/ --schedule '*/5 * * * *'
  {PROGRAM} serve

Exit codes: 0 done, 1 audit failed, 2 invalid input, 3 try again, 4 outcome unknown, 70 internal
error, 130 interrupted."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_EPILOG)
@click.argument("mode", type=click.Choice(["run", "enqueue", "serve"]), default="run")
@click.option("--table_name", "--table-name", metavar="TABLE", help="namespace.table, or table. [TABLE_NAME]")
@click.option("--namespace", metavar="NAME", help="Namespace of the table. [NAMESPACE]")
@click.option(
    "--s3_path", "--s3-path", metavar="PATH", help="File, folder, pattern or prefix, local or in a store. [S3_PATH]"
)
@click.option("--branch_name", "--branch-name", metavar="NAME", help="New branch to write to. [BRANCH_NAME]")
@click.option("--run_id", "--run-id", metavar="ID", help="Id of the run and its workflow; each id runs once. [RUN_ID]")
@click.option("--check", "-c", multiple=True, metavar="CHECK", help="A check, such as 'not_null(id)'. Repeatable.")
@click.option(
    "--schedule", metavar="CRON", help="serve: look for new files in PATH on this schedule (UTC). off ends it."
)
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="serve: concurrent ingests.")
@click.option("--grace", type=click.IntRange(0), default=25, show_default=True, help="serve: seconds to finish.")
@click.option("--home", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The project's folder.")
@click.option("--config", type=click.Path(path_type=Path), help="Default: dbos-config.yaml here or in the project.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Format of standard output.")
@click.option("--debug", is_flag=True, help="Show tracebacks, and DBOS's own log.")
def main(mode: str, **given: Any) -> int:
    """Write files to a branch, audit them, and publish them to main, as a durable DBOS workflow.

    run (the default) does so once and waits. enqueue leaves the work to a process in mode serve. serve processes the
    queues and, with --schedule, looks for new files.

    Each mode first finishes what crashed processes left behind. You can also set an option with the variable in its
    brackets, in the environment or in section env of dbos-config.yaml, which has DBOS's own format.
    """
    home = given["home"] or find_home()
    require_extra("dbos", "dbos", "3.4", "4")
    from lakegate.integrations.dbos import workflows
    from lakegate.integrations.dbos.configuration import load_configuration

    configuration = load_configuration(given["config"], home=home, journal=load_settings(home).journal)
    for name in _VARIABLES:
        given[name] = given[name] or configuration.variables.get(name.upper()) or None
    workflows.use_lake(lambda narrator: connect(home, narrator=narrator, orchestrator="dbos"))
    return MODES[mode](configuration, given)


def order_of(given: Mapping[str, Any]) -> Order:
    """Return the order for one run: table, paths, checks and branch.

    It's checked here, since another process, in another folder, may be the one to run it.
    """
    from lakegate.checks import parse_checks
    from lakegate.loading.routes import absolute

    for name in ("table_name", "s3_path"):
        if given[name] is None:
            raise ConfigurationError(
                f"{name.upper()} (--{name}) is missing.", hint=f"Set the variable {name.upper()}, or pass --{name}."
            )
    for text in given["check"]:
        parse_checks(text)
    table, paths = full_name(given["table_name"], given["namespace"]), [absolute(given["s3_path"])]
    order: Order = {"table": table, "paths": paths, "checks": list(given["check"])}
    if given["branch_name"] is not None:
        order["branch"] = given["branch_name"]
    return order


def _run_id(given: Mapping[str, Any]) -> str:
    return validate_run_id(given["run_id"] or new_run_id())


def _run(configuration: DbosConfiguration, given: Mapping[str, Any]) -> int:
    from lakegate.integrations.dbos import program, workflows

    order, run_id = order_of(given), _run_id(given)
    with program.launched(configuration, debug=given["debug"]) as recovered:
        workflows.undo_cancelled_runs()
        outcome = program.run_one(order, run_id, recovered=recovered)
    click.echo(json.dumps(outcome, indent=2) if given["output"] == "json" else sentence(outcome))
    return _ENDINGS.get(outcome["status"], ExitCode.USAGE)


def _enqueue(configuration: DbosConfiguration, given: Mapping[str, Any]) -> int:
    from lakegate.integrations.dbos import program

    order = order_of(given)
    run_id, has_ended = program.enqueue(configuration, order, _run_id(given))
    if given["output"] == "json":
        status = "ended" if has_ended else "enqueued"
        click.echo(json.dumps({"run_id": run_id, "status": status, "table": order["table"]}, indent=2))
    elif has_ended:
        click.echo(f"Run {run_id} of {order['table']} has ended. To see its outcome: lakegate runs {run_id}")
    else:
        click.echo(f"Run {run_id} of {order['table']} is on the queue.")
    return ExitCode.OK


def _serve(configuration: DbosConfiguration, given: Mapping[str, Any]) -> int:
    from dbos import DBOS
    from dbos import error as dbos_errors

    from lakegate.integrations.dbos import program, queues, workflows
    from lakegate.loading.routes import require_there

    cron = given["schedule"]
    order = None if cron is None else order_of({**given, "s3_path": given["s3_path"] or ""} if cron == _OFF else given)
    if order is not None and cron != _OFF:
        require_there(order["paths"])
    with program.launched(configuration, listens=queues.QUEUES, debug=given["debug"], grace_s=given["grace"]):
        workflows.undo_cancelled_runs()
        queues.register(concurrency=given["concurrency"])
        if order is not None and cron == _OFF:
            DBOS.delete_schedule(queues.schedule_name(order["table"]))
        elif order is not None:
            watch = queues.ScheduledScan(table=order["table"], paths=order["paths"], checks=order["checks"])
            try:
                name = queues.schedule(cron, watch)
            except dbos_errors.DBOSException as error:
                raise ConfigurationError(
                    f"--schedule '{cron}': {error}",
                    hint="Minute, hour, day, month, weekday: '*/5 * * * *' is every five minutes. To end it, pass off.",
                ) from None
            click.echo(f"Schedule {name} looks for new files at '{cron}' (UTC).", err=True)
        click.echo("Serving. To stop, press Ctrl-C or send SIGTERM.", err=True)
        program.serve()
        click.echo(f"Stopping. Runs that aren't done in {given['grace']} s continue at the next start.", err=True)
    return ExitCode.OK


MODES: Mapping[str, Callable[[DbosConfiguration, Mapping[str, Any]], int]] = {
    "run": _run,
    "enqueue": _enqueue,
    "serve": _serve,
}


def sentence(outcome: Outcome) -> str:
    """Return a run's outcome as text, with the next command to run if it was rejected."""
    table, run_id = outcome["table"], outcome["run_id"]
    if outcome["status"] == "published":
        return f"Run {run_id} published {outcome['rows']:,} rows to {table}."
    if outcome["status"] == "rejected":
        reasons = "\n".join(f"  {failure}" for failure in outcome["failures"])
        about = f"Branch: {outcome['branch']}\nNext: lakegate runs {run_id}"
        return f"Run {run_id} was rejected; nothing was published to {table}:\n{reasons}\n{about}"
    return f"Run {run_id} of {table} is {outcome['status']}: {outcome['detail']}"


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _exit_now(code: int) -> NoReturn:
    """Exit without waiting for steps in progress: their workflows continue at the next start."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    _exit_now(run_command(main, PROGRAM))
