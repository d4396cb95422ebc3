"""``python -m lakegate.integrations.dbos``: one run, or a worker with a queue and a schedule, as DBOS workflows."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lakegate.config import find_home, load_settings
from lakegate.errors import ConfigurationError, ExitCode, LakegateError
from lakegate.integrations import require_extra
from lakegate.lake import connect
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.run import new_run_id

if TYPE_CHECKING:
    from lakegate.integrations.dbos.configuration import DbosConfiguration
    from lakegate.integrations.dbos.program import ChunkOutcome
    from lakegate.integrations.dbos.queues import ScheduledScan
    from lakegate.integrations.dbos.workflows import Order, Outcome

PROGRAM = "python -m lakegate.integrations.dbos"
_INTERNAL = 70
_OFF = "off"
_ENDINGS = {"published": ExitCode.OK, "skipped": ExitCode.OK, "rejected": ExitCode.AUDIT_FAILED}
_EPILOG = f"""\b
Examples:
  {PROGRAM} --table_name nyc.trips --s3_path 'january/*.parquet'
  {PROGRAM} --table_name nyc.trips --s3_path january.csv --run_id january
  TABLE_NAME=trips NAMESPACE=nyc S3_PATH=s3://bucket/january/ {PROGRAM}
  {PROGRAM} enqueue --table_name nyc.trips --s3_path january.csv
  {PROGRAM} serve --table_name nyc.trips --s3_path landing/ --schedule '*/5 * * * *'
  {PROGRAM} serve
  {PROGRAM} backfill --table_name nyc.trips --s3_path 'trips/%Y-%m-%d.parquet' --from 2024-01 --to 2024-03

Exit codes: 0 done, 1 audit failed, 2 invalid input, 3 try again, 4 outcome unknown, 70 internal
error, 130 interrupted."""


class Options:
    """Values from flags and variables. Flags take precedence."""

    def __init__(self, flags: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self._flags = flags
        self._variables = variables

    def text(self, name: str) -> str | None:
        """Return the value of a flag, or of the variable with its name in capitals."""
        return self._flags[name] or self._variables.get(name.upper()) or None

    def required(self, name: str) -> str:
        """Return the value, or raise an error that names both the flag and the variable."""
        value = self.text(name)
        if value is None:
            raise ConfigurationError(
                f"{name.upper()} (--{name}) is missing.", hint=f"Set the variable {name.upper()}, or pass --{name}."
            )
        return value

    def checked(self, name: str, value: str, check: Callable[[str], object]) -> str:
        """Return the value if it's valid, or raise an error that names both the flag and the variable."""
        try:
            check(value)
        except LakegateError as error:
            raise ConfigurationError(f"{name.upper()} (--{name}): {error.message}", hint=error.hint) from None
        return value

    def table(self) -> str:
        """Return ``namespace.table``, given as one value or as two."""
        name, namespace = self.required("table_name"), self.text("namespace")
        if namespace is None and "." not in name:
            raise ConfigurationError(
                f"TABLE_NAME (--table_name) '{name}' has no namespace, and NAMESPACE (--namespace) is missing.",
                hint=f"Set the variable NAMESPACE, or write the table as nyc.{name}.",
            )
        if namespace is None or name.startswith(f"{namespace}."):
            return self.checked("table_name", name, TableIdentifier.parse)
        if "." in name:
            raise ConfigurationError(
                f"TABLE_NAME (--table_name) '{name}' isn't in NAMESPACE (--namespace) '{namespace}'.",
                hint="Name the namespace once.",
            )
        return self.checked("table_name", f"{namespace}.{name}", TableIdentifier.parse)

    def run_id(self) -> str:
        """Return the run's id; by default a new one."""
        return self.checked("run_id", self.text("run_id") or new_run_id(), validate_run_id)

    def cron(self) -> str | None:
        """Return the schedule's cron expression, ``off``, or ``None``."""
        from croniter import croniter

        cron: str | None = self._flags["schedule"]
        if cron not in (None, _OFF) and not croniter.is_valid(cron, second_at_beginning=True):
            raise ConfigurationError(
                f"--schedule '{cron}' isn't a cron expression.",
                hint="Minute, hour, day, month, weekday: '*/5 * * * *' is every five minutes. To end it, pass off.",
            )
        return cron

    def path(self) -> str:
        """Return the path of the files, absolute, so that other processes on this machine can use it."""
        from lakegate.loading.routes import absolute

        return absolute(self.required("s3_path"))

    def checks(self) -> list[str]:
        """Return the checks, or raise an error if one is invalid."""
        from lakegate.checks import parse_checks

        for text in self._flags["check"]:
            parse_checks(text)
        return list(self._flags["check"])

    def order(self) -> Order:
        """Return the order for one run: table, paths, checks and branch."""
        order: Order = {"table": self.table(), "paths": [self.path()], "checks": self.checks()}
        branch = self.text("branch_name")
        if branch is not None:
            order["branch"] = branch
        return order

    def watch(self) -> ScheduledScan:
        """Return what a schedule watches."""
        from lakegate.loading.routes import require_there

        watch: ScheduledScan = {"table": self.table(), "paths": [self.path()], "checks": self.checks()}
        require_there(watch["paths"])
        return watch


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_EPILOG)
@click.argument("mode", type=click.Choice(["run", "enqueue", "serve", "backfill"]), default="run")
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
@click.option("--from", "since", metavar="DATE", help="backfill: start of the range, as a date, month or time.")
@click.option("--to", "until", metavar="DATE", help="backfill: end of the range, inclusive.")
@click.option(
    "--by",
    type=click.Choice(["path", "modified"]),
    default="path",
    help="backfill: date files by path or time.",
)
@click.option("--chunk", metavar="UNIT", help="backfill: hour, day, month, year, file or a number of files.")
@click.option("--parallel", type=click.IntRange(1), default=4, show_default=True, help="backfill: concurrent chunks.")
@click.option("--grace", type=click.IntRange(0), default=25, show_default=True, help="serve: seconds to finish.")
@click.option("--home", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The project's folder.")
@click.option("--config", type=click.Path(path_type=Path), help="Default: dbos-config.yaml here or in the project.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Format of standard output.")
@click.option("--debug", is_flag=True, help="Show tracebacks, and DBOS's own log.")
def main(mode: str, **flags: Any) -> None:
    """Write files to a branch, audit them, and publish them to main, as a durable DBOS workflow.

    run (the default) does so once and waits. enqueue leaves the work to a process in mode serve. serve processes the
    queues and, with --schedule, looks for new files. backfill ingests historical files; run it again to continue.

    Each mode first finishes what crashed processes left behind. You can also set an option with the variable in its
    brackets, in the environment or in section env of dbos-config.yaml, which has DBOS's own format.
    """
    home = flags["home"] or find_home()
    require_extra("dbos", "dbos", "3.4", "4")
    from lakegate.integrations.dbos import workflows
    from lakegate.integrations.dbos.configuration import load_configuration

    configuration = load_configuration(flags["config"], home=home, journal=load_settings(home).journal)
    given = Options(flags, configuration.variables)
    workflows.use_lake(lambda narrator: connect(home, narrator=narrator, orchestrator="dbos"))
    raise click.exceptions.Exit(MODES[mode](configuration, given, flags))


def _run(configuration: DbosConfiguration, given: Options, flags: Mapping[str, Any]) -> int:
    from lakegate.integrations.dbos import program, workflows

    order, run_id = given.order(), given.run_id()
    with program.launched(configuration, debug=flags["debug"]) as recovered:
        workflows.undo_cancelled_runs()
        outcome = program.run_one(order, run_id, recovered=recovered)
    click.echo(json.dumps(outcome, indent=2) if flags["output"] == "json" else sentence(outcome))
    return _ENDINGS.get(outcome["status"], ExitCode.USAGE)


def _enqueue(configuration: DbosConfiguration, given: Options, flags: Mapping[str, Any]) -> int:
    from lakegate.integrations.dbos import program

    order, run_id = given.order(), given.run_id()
    queued, has_ended = program.enqueue(configuration, order, run_id)
    if flags["output"] == "json":
        status = "ended" if has_ended else "enqueued"
        click.echo(json.dumps({"run_id": queued, "status": status, "table": order["table"]}, indent=2))
    elif has_ended:
        click.echo(f"Run {queued} of {order['table']} has ended. To see its outcome: lakegate runs {queued}")
    else:
        click.echo(f"Run {queued} of {order['table']} is on the queue.")
    return ExitCode.OK


def _serve(configuration: DbosConfiguration, given: Options, flags: Mapping[str, Any]) -> int:
    from dbos import DBOS

    from lakegate.integrations.dbos import program, queues, workflows

    cron = given.cron()
    watch = None if cron in (None, _OFF) else given.watch()
    with program.launched(configuration, queues=queues.QUEUES, debug=flags["debug"], grace_s=flags["grace"]):
        workflows.undo_cancelled_runs()
        queues.register(concurrency=flags["concurrency"])
        if cron == _OFF:
            DBOS.delete_schedule(queues.schedule_name(given.table()))
        elif cron is not None and watch is not None:
            name = queues.schedule(cron, watch)
            click.echo(f"Schedule {name} looks for new files at '{cron}' (UTC).", err=True)
        click.echo("Serving. To stop, press Ctrl-C or send SIGTERM.", err=True)
        program.serve()
        click.echo(f"Stopping. Runs that aren't done in {flags['grace']} s continue at the next start.", err=True)
    return ExitCode.OK


def _backfill(configuration: DbosConfiguration, given: Options, flags: Mapping[str, Any]) -> int:
    from lakegate.integrations.dbos import program, queues, workflows

    order = given.order()
    chunks = program.backfill(
        workflows.open_lake,
        order["table"],
        order["paths"],
        flags["since"],
        flags["until"],
        by=flags["by"],
        chunk=flags["chunk"],
        checks=order["checks"],
    )
    ended = []
    with program.launched(configuration, queues=[queues.BACKFILL], debug=flags["debug"]):
        queues.register_backfill(flags["parallel"])
        for one in chunks:
            ended.append(one)
            if flags["output"] == "text":
                click.echo(f"{one['chunk']}: {_sentence_of_chunk(one)}")
    if flags["output"] == "json":
        click.echo(json.dumps(ended, indent=2))
    elif not ended:
        click.echo(f"All files of the range are already in {order['table']}.")
    return max(map(_exit_code, ended), default=ExitCode.OK)


MODES: Mapping[str, Callable[[DbosConfiguration, Options, Mapping[str, Any]], int]] = {
    "run": _run,
    "enqueue": _enqueue,
    "serve": _serve,
    "backfill": _backfill,
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


def _sentence_of_chunk(ended: ChunkOutcome) -> str:
    outcome, error = ended["outcome"], ended["error"]
    said = f"Run {ended['run_id']} failed:" if outcome is None else sentence(outcome)
    return said if error is None else f"{said} {error['message']}"


def _exit_code(ended: ChunkOutcome) -> int:
    outcome, error = ended["outcome"], ended["error"]
    of_run = ExitCode.OK if outcome is None else _ENDINGS.get(outcome["status"], ExitCode.USAGE)
    return of_run if error is None else int(str(error["exit_code"]))


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def start(words: Sequence[str] | None = None) -> int:
    """Run the program with ``words``, by default those of the command line, and return its exit code."""
    given = sys.argv[1:] if words is None else list(words)
    try:
        code = main.main(given, prog_name=PROGRAM, standalone_mode=False)
    except LakegateError as error:
        return _report(error.message, error.hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _report("Interrupted. To continue the run, start the program again.", None, ExitCode.INTERRUPTED)
    except click.ClickException as error:
        return _report(error.format_message(), f"For help, run: {PROGRAM} --help", ExitCode.USAGE)
    except Exception as error:
        if "--debug" in given:
            raise
        return _report(
            f"internal error: {type(error).__name__}: {error}",
            "To see the traceback, pass --debug.",
            _INTERNAL,
        )
    return code if isinstance(code, int) else ExitCode.OK


def _report(message: str, hint: str | None, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint:  {hint}", err=True)
    return code


def _exit_now(code: int) -> NoReturn:
    """Exit without waiting for steps in progress: their workflows continue at the next start."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    _exit_now(start())
