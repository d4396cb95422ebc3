"""``lakegate aws``."""

# ruff: noqa: PLC0415 - AWS's library is slow to load, and an extra
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from lakegate.aws.parameters import PARAMETERS
from lakegate.cli.app import App, pass_app, redact
from lakegate.cli.commandline import PROGRAM, group
from lakegate.cli.options import output_option
from lakegate.cli.render import aws as render
from lakegate.cli.render.console import echo_json
from lakegate.config import HOME_NAME

if TYPE_CHECKING:
    from lakegate.aws.deployment import Deployment
    from lakegate.aws.package import Architecture
    from lakegate.aws.values import Plan, Survey

F = TypeVar("F", bound=Callable[..., Any])


def _name_options(function: F) -> F:
    options = (
        click.option("--name", required=True, metavar="NAME", help="The deployment's name, such as demo."),
        click.option("--region", metavar="REGION", help="Default: AWS_REGION or the profile's."),
        click.option("--profile", metavar="PROFILE", help="Of AWS's own configuration. Default: AWS_PROFILE."),
    )
    return _with(options, function)


def _template_options(function: F) -> F:
    settings = click.option(
        "--settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A lakegate.toml for the function: checks of tables, channels to tell. Default: the one it has.",
    )
    options = (
        click.option(
            one.option,
            one.name,
            metavar=None if one.choices else one.metavar,
            type=click.Choice(one.choices) if one.choices else str,
            help=one.help,
        )
        for one in PARAMETERS
    )
    return _with((settings, *options), function)


def _with(options: tuple[Callable[[F], F], ...], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


@group(
    "aws",
    examples=(
        "lakegate aws plan --name demo",
        "lakegate aws deploy --name demo --region eu-central-1",
        "lakegate aws status --name demo",
        "lakegate aws destroy --name demo",
    ),
)
def aws() -> None:
    """Deploy to AWS: a bucket, and a function that ingests what lands in it.

    Nessie, Spark Connect, the journal's database and a network are made too, unless you bring them. Credentials are
    found in the usual ways of AWS's own tools.
    """


@aws.command(
    "plan",
    examples=(
        "lakegate aws plan --name demo",
        "lakegate aws plan --name demo --spark-url sc://spark.example.com:15002 -o json",
    ),
)
@_name_options
@_template_options
@output_option()
@pass_app
def plan(
    app: App, /, *, name: str, region: str | None, profile: str | None, settings: Path | None, output: str, **given: Any
) -> None:
    """Show what deploy would make, change and remove; change nothing."""
    deployment = _deployment(app, name, region, profile)
    values = _values(given)
    planned = deployment.plan(values, _package(app, deployment, values, settings))
    if output == "json":
        echo_json(planned.model_dump(mode="json"))
    else:
        words = [PROGRAM, *app.words]
        words[words.index("plan")] = "deploy"
        render.show_plan(planned, redact(shlex.join(words)))


@aws.command(
    "deploy",
    examples=(
        "lakegate aws deploy --name demo",
        "lakegate aws deploy --name demo --catalog-store dynamodb --spark-size medium --yes",
        "lakegate aws deploy --name demo --settings lakegate.toml --function-memory 4096 -o json --yes",
    ),
)
@_name_options
@_template_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option()
@pass_app
def deploy(
    app: App,
    /,
    *,
    name: str,
    region: str | None,
    profile: str | None,
    settings: Path | None,
    yes: bool,
    output: str,
    **given: Any,
) -> None:
    """Make a deployment, or bring it up to date: the template's resources and the function.

    Shows what it will do and asks, once more before it parts from data. What is not given stays as it was deployed.
    When nothing has to change, it says so. When a resource cannot be made, everything is put back as it was.
    """
    deployment = _deployment(app, name, region, profile)
    values = _values(given)

    def approve(planned: Plan) -> bool:
        render.tell_plan(planned)
        leaves_data = any(change.leaves_data for change in planned.changes)
        return _agreed("Make these changes?", yes=yes) and (
            not leaves_data or _agreed("Go on without that data?", yes=yes)
        )

    done = deployment.deploy(values, _package(app, deployment, values, settings), approve=approve)
    if output == "json":
        echo_json(done.model_dump(mode="json"))
    else:
        render.show_deployed(done, app.command(*_again("status", name, region, profile)))


@aws.command(
    "status",
    examples=("lakegate aws status --name demo", "lakegate aws status --name demo --drift --errors 20 -o json"),
)
@_name_options
@click.option("--errors", type=click.IntRange(min=0), default=5, show_default=True, help="Errors of the logs to show.")
@click.option("--drift", is_flag=True, help="Also look for resources that others changed; takes a while.")
@output_option()
@pass_app
def status(
    app: App, /, *, name: str, region: str | None, profile: str | None, errors: int, drift: bool, output: str
) -> None:
    """Show a deployment: its state and addresses, what waits, what was given up, the last errors."""
    found = _deployment(app, name, region, profile).status(errors=errors, drift=drift)
    if output == "json":
        echo_json(found.model_dump(mode="json"))
    else:
        render.show_status(found)


@aws.command(
    "destroy",
    examples=("lakegate aws destroy --name demo", "lakegate aws destroy --name demo --keep-data --yes"),
)
@_name_options
@click.option("--keep-data", is_flag=True, help="Keep the bucket, the catalog's tables, a snapshot of the database.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option()
@pass_app
def destroy(
    app: App, /, *, name: str, region: str | None, profile: str | None, keep_data: bool, yes: bool, output: str
) -> None:
    """Delete a deployment, all that was made for it.

    Shows what goes and asks, once more before data goes: objects with all their versions, the database. What is gone
    already is no error.
    """
    deployment = _deployment(app, name, region, profile)
    found = deployment.survey()
    goes = _goes(found, keep_data=keep_data)
    if goes:
        render.tell_survey(found, keep_data=keep_data)
        if _agreed("Delete all this?", yes=yes) and (
            keep_data or not found.has_data or _agreed("Delete the data too? It cannot be brought back.", yes=yes)
        ):
            deployment.destroy(found, keep_data=keep_data)
        else:
            raise click.Abort from click.ClickException("Nothing was deleted.")
    if output == "json":
        echo_json({"stack": found.stack, "deleted": goes, "kept_data": keep_data and found.has_data})
    else:
        render.show_destroyed(found, deleted=goes, keep_data=keep_data)


def _goes(found: Survey, *, keep_data: bool) -> bool:
    return found.state is not None or found.code is not None if keep_data else not found.is_empty


def _deployment(app: App, name: str, region: str | None, profile: str | None) -> Deployment:
    from lakegate.aws.clients import open_clients
    from lakegate.aws.deployment import Deployment
    from lakegate.aws.names import DeploymentName

    DeploymentName(name)
    return Deployment(name, open_clients(region, profile), app.narrator)


def _values(given: Mapping[str, str | None]) -> dict[str, str]:
    from lakegate.aws.parameters import validated

    return validated({name: value for name, value in given.items() if value is not None})


def _package(app: App, deployment: Deployment, values: Mapping[str, str], settings: Path | None) -> Path:
    from lakegate.aws.package import FunctionPackage, build_package

    chosen = {**deployment.parameters(), **values}
    usual = FunctionPackage()
    folder = app.folder() / HOME_NAME / "aws"
    wanted = FunctionPackage(
        python=chosen.get("PythonVersion", usual.python),
        architecture=cast("Architecture", chosen.get("Architecture", usual.architecture)),
        settings=settings or deployment.settings(folder),
    )
    with app.narrator.step("Building the function"):
        return build_package(folder, wanted)


def _agreed(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask: standard input is no terminal. Give --yes.")
    return click.confirm(question, err=True)


def _again(word: str, name: str, region: str | None, profile: str | None) -> tuple[str, ...]:
    given = (("--region", region), ("--profile", profile))
    return ("aws", word, "--name", name, *(part for option, value in given if value for part in (option, value)))
