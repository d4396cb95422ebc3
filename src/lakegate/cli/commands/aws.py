"""Deploy to AWS: plan, deploy, status, destroy."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from lakegate.cli.app import PROGRAM, App, group
from lakegate.cli.options import confirm, with_options, yes_option
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, show_rows
from lakegate.config import HOME_NAME
from lakegate.integrations.aws.parameters import PARAMETERS, Deployed, validated
from lakegate.model.words import count, counted, moment, size
from lakegate.progress import one_line, redact

if TYPE_CHECKING:
    from lakegate.integrations.aws.building import Builder, Images
    from lakegate.integrations.aws.deployment import Deployment
    from lakegate.integrations.aws.package import Architecture
    from lakegate.integrations.aws.parameters import (
        BucketContent,
        BuiltImage,
        Costs,
        DeploymentInventory,
        DeploymentPlan,
        ResourceChange,
        Status,
    )

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_BUILDERS = ("auto", "docker", "finch", "podman", "codebuild")
_builder_option = click.option(
    "--builder",
    type=click.Choice(_BUILDERS),
    default="auto",
    show_default=True,
    help="Builder of container images. auto: a container engine on this machine, else CodeBuild.",
)


class _Target(NamedTuple):
    """The deployment that a command is for."""

    name: str
    region: str | None
    profile: str | None
    role_arn: str | None

    def deployment(self, app: App) -> Deployment:
        """Return the deployment, which may not exist yet."""
        from lakegate.integrations.aws.clients import DeploymentName, open_clients
        from lakegate.integrations.aws.deployment import Deployment

        DeploymentName(self.name)
        return Deployment(self.name, open_clients(self.region, self.profile), app.narrator, role=self.role_arn)

    def command(self, app: App, word: str) -> str:
        """Return a command for this deployment to type next."""
        given = (("--region", self.region), ("--profile", self.profile))
        options = (part for option, value in given if value for part in (option, value))
        return app.command("aws", word, "--name", self.name, *options)


class _BuildOptions(NamedTuple):
    """What to build the function from."""

    settings: Path | None
    package: str | None
    builder: str


_name_options = with_options(
    click.option("--name", required=True, metavar="NAME", help="The deployment's name, such as demo."),
    click.option("--region", metavar="REGION", help="AWS region. Default: AWS_REGION, or the profile's."),
    click.option("--profile", metavar="PROFILE", help="Profile in your AWS configuration. Default: AWS_PROFILE."),
)


def _template_options(function: F) -> F:
    settings = click.option(
        "--settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A lakegate.toml for the function, with checks and alert channels. Includes the folder contracts beside "
        "it. Default: the deployed settings.",
    )
    role = click.option(
        "--role-arn",
        metavar="ARN",
        help="Role for CloudFormation to assume. Default: the last one you passed, or your own.",
    )
    package = click.option(
        "--package",
        type=click.Choice(("zip", "image")),
        help="Deploy the function as a zip or as a container image. Default: as it is now, or a zip.",
    )
    options = (
        click.option(
            one.option,
            one.name,
            metavar=None if one.choices else one.metavar,
            type=click.Choice(one.choices) if one.choices else str,
            help=one.help,
            **_optional_value(one.bare),
        )
        for one in PARAMETERS
    )
    return with_options(settings, package, role, _builder_option, *options)(function)


def _optional_value(bare: str | None) -> dict[str, Any]:
    return {} if bare is None else {"is_flag": False, "flag_value": bare}


@group(
    "aws",
    examples=(
        "lakegate aws plan --name demo",
        "lakegate aws deploy --name demo --region eu-central-1",
        "lakegate aws image --name demo",
        "lakegate aws status --name demo",
        "lakegate aws destroy --name demo",
    ),
)
def aws() -> None:
    """Deploy to AWS: a bucket, and a function that ingests the files that land in it.

    Also creates Nessie, Spark Connect, the journal's database and a network, unless you bring your own. Uses your AWS
    credentials as AWS's own tools do.
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
def plan(app: App, /, **given: Any) -> None:
    """Show what deploy would create, change and remove. Changes nothing."""
    target, code = _pop_fields(_Target, given), _pop_fields(_BuildOptions, given)
    deployment, values = target.deployment(app), _values(given)
    zipped, images = _build(app, deployment, values, code, builds_images=False)
    planned = deployment.plan(values, zipped, images.values).model_copy(update={"notes": images.notes})
    if app.json:
        echo_json(planned)
    else:
        words = [PROGRAM, *app.words]
        words[words.index("plan", words.index("aws"))] = "deploy"
        _show_plan(planned, redact(shlex.join(words)))


@aws.command(
    "deploy",
    examples=(
        "lakegate aws deploy --name demo",
        "lakegate aws deploy --name demo --catalog-store dynamodb --spark-size medium --yes",
        "lakegate aws deploy --name demo --settings lakegate.toml --function-memory 4096 -o json --yes",
        "lakegate aws deploy --name demo --package image --builder codebuild",
    ),
)
@_name_options
@_template_options
@click.option("--smoke", is_flag=True, help="Afterwards, ingest a test file, wait until it's published, and revert it.")
@yes_option
def deploy(app: App, /, *, smoke: bool, yes: bool, **given: Any) -> None:
    """Create or update a deployment.

    Shows the changes and asks for confirmation, and asks again before it abandons data. Options that you don't pass
    keep their deployed values. If a resource can't be created, everything is rolled back.
    """
    target, code = _pop_fields(_Target, given), _pop_fields(_BuildOptions, given)
    deployment, values = target.deployment(app), _values(given)

    def approve(planned: DeploymentPlan) -> bool:
        _announce_plan(planned)
        leaves_data = any(change.leaves_data for change in planned.changes)
        return confirm("Make these changes?", yes=yes) and (
            not leaves_data or confirm("Continue without that data?", yes=yes)
        )

    zipped, images = _build(app, deployment, values, code, builds_images=False)
    if images.is_built:
        done = deployment.deploy(values, zipped, images.values, approve=approve)
    elif approve(planned := deployment.plan(values, zipped, images.values)):
        # Not earlier, so that declining leaves no image behind.
        zipped, images = _build(app, deployment, values, code, builds_images=True)
        done = deployment.deploy(values, zipped, images.values)
    else:
        done = Deployed(stack=planned.stack, changed=False, declined=True)
    done = done.model_copy(update={"notes": (*done.notes, *images.notes)})
    if smoke and not done.declined:
        done = done.model_copy(update={"smoke": deployment.smoke(done.outputs)})
    if app.json:
        echo_json(done)
    else:
        _show_deployed(done, target.command(app, "status"))


@aws.command(
    "image",
    examples=(
        "lakegate aws image --name demo",
        "lakegate aws image --name demo --architecture arm64 --builder codebuild",
        "lakegate aws image --name demo --rebuild -o json",
    ),
)
@_name_options
@click.option(
    "--architecture",
    type=click.Choice(("x86_64", "arm64")),
    help="CPU architecture for Spark. Default: the deployment's --spark-architecture, or x86_64.",
)
@click.option(
    "--base",
    metavar="IMAGE",
    help="Spark image to build on; a tag is resolved to its digest. Default: the Spark project's image.",
)
@_builder_option
@click.option("--rebuild", is_flag=True, help="Build it again on the current base image, for its security fixes.")
def image(
    app: App,
    /,
    *,
    architecture: str | None,
    base: str | None,
    builder: str,
    rebuild: bool,
    **given: Any,
) -> None:
    """Build Spark's container image and push it to your ECR registry.

    It contains all the jars that lakegate is tested with, verified by their SHA-256. `lakegate aws deploy` then runs
    the image by its digest, and Spark downloads nothing when it starts. An existing image for this version is reused.
    Docker, Finch or Podman builds it, or CodeBuild in a stack that is deleted afterwards.
    """
    from lakegate.integrations.aws.building import spark_source

    target = _pop_fields(_Target, given)
    deployment = target.deployment(app)
    chosen = architecture or deployment.parameters().get("SparkArchitecture") or "x86_64"
    source = spark_source(cast("Architecture", chosen), base)
    images = deployment.images(app.folder() / HOME_NAME / "aws")
    found = None if rebuild or base else images.find(source)
    built = found or images.build(source, cast("Builder", builder))
    if app.json:
        echo_json({**built.model_dump(mode="json"), "built": found is None})
    else:
        _show_image(built, target.command(app, "deploy"), is_new=found is None)


@aws.command(
    "status",
    examples=("lakegate aws status --name demo", "lakegate aws status --name demo --drift --errors 20 -o json"),
)
@_name_options
@click.option(
    "--errors",
    type=click.IntRange(min=0),
    metavar="N",
    default=5,
    show_default=True,
    help="Number of logged errors to show.",
)
@click.option(
    "--drift", is_flag=True, help="Also detect resources that were changed outside CloudFormation. Takes a while."
)
def status(app: App, /, *, errors: int, drift: bool, **given: Any) -> None:
    """Show a deployment's state, addresses, queues and latest errors."""
    found = _pop_fields(_Target, given).deployment(app).status(errors=errors, drift=drift)
    if app.json:
        echo_json(found)
    else:
        _show_status(found)


@aws.command(
    "destroy",
    examples=("lakegate aws destroy --name demo", "lakegate aws destroy --name demo --keep-data --yes"),
)
@_name_options
@click.option(
    "--keep-data", is_flag=True, help="Keep the bucket, the catalog's tables, and a snapshot of the database."
)
@yes_option
def destroy(app: App, /, *, keep_data: bool, yes: bool, **given: Any) -> None:
    """Delete a deployment and everything that was created for it.

    Shows what it will delete and asks for confirmation, and asks again before it deletes data: all versions of objects,
    and the database. It's fine if some of it is already deleted.
    """
    deployment = _pop_fields(_Target, given).deployment(app)
    found = deployment.survey()
    deletes = (found.state is not None or found.has_code) if keep_data else not found.is_empty
    if deletes:
        _announce_deletion(found, keep_data=keep_data)
        if confirm("Delete all of this?", yes=yes) and (
            keep_data or not found.has_data or confirm("Delete the data too? This can't be undone.", yes=yes)
        ):
            deployment.destroy(found, keep_data=keep_data)
        else:
            raise click.Abort from click.ClickException("Nothing was deleted.")
    if app.json:
        echo_json({"stack": found.stack, "deleted": deletes, "kept_data": keep_data and found.has_data})
    else:
        _show_destroyed(found, deleted=deletes, keep_data=keep_data)


def _pop_fields(kind: type[T], given: dict[str, Any]) -> T:
    """Remove the fields of ``kind`` from a command's options, and return them as one."""
    return kind(*(given.pop(field, None) for field in kind.__annotations__))


def _values(given: Mapping[str, str | None]) -> dict[str, str]:
    return validated({name: value for name, value in given.items() if value is not None})


def _build(
    app: App, deployment: Deployment, values: Mapping[str, str], code: _BuildOptions, *, builds_images: bool
) -> tuple[Path, Images]:
    """Build the function. Return its zip and the container images to deploy."""
    from lakegate.integrations.aws.building import Images, function_source
    from lakegate.integrations.aws.package import FunctionPackage, build_package, lacking_in_function, require_fit

    deployed = deployment.parameters()
    chosen = {**deployed, **values}
    default = FunctionPackage()
    folder = app.folder() / HOME_NAME / "aws"
    is_image = code.package == "image" or (code.package is None and bool(deployed.get("ImageUri")))
    wanted = FunctionPackage(
        python=chosen.get("PythonVersion", default.python),
        architecture=cast("Architecture", chosen.get("Architecture", default.architecture)),
        settings=code.settings or deployment.settings(folder),
        contracts=code.settings.parent / "contracts" if code.settings else deployment.contracts(folder),
    )
    with app.narrator.step("Building the function"):
        package = build_package(folder, wanted)
    images = deployment.images(folder)
    spark = images.spark(values, deployed)
    spark = spark._replace(notes=(*spark.notes, *lacking_in_function(wanted.settings)))
    if not is_image:
        require_fit(package)
        return package, spark
    source = function_source(wanted.architecture, wanted.python, package)
    function = images.function(source, cast("Builder", code.builder), build=builds_images)
    return package, Images(
        {**spark.values, **function.values}, (*spark.notes, *function.notes), is_built=function.is_built
    )


_STYLES = {"add": "green", "modify": "yellow", "remove": "red"}
_WORDS = {"add": "create", "modify": "change", "remove": "remove"}


def _show_plan(plan: DeploymentPlan, command: str) -> None:
    _print_notes(plan.notes)
    if not plan.changes:
        say(f"[bold green]up to date[/]  {safe(plan.stack)}; nothing would change")
        _show_costs(plan.costs)
        return
    say(f"[bold]plan[/]  {safe(_totals(plan))}; nothing was changed")
    rows = (
        Styled((one.resource, _WORDS.get(one.action, one.action), one.type, _effect(one)), _STYLES.get(one.action))
        for one in plan.changes
    )
    show_rows(("resource", "", "kind", "what"), rows)
    _show_costs(plan.costs)
    say(*(f"[yellow]{safe(text)}[/]" for text in plan.warnings))
    next_commands(("Do it", command))


def _announce_plan(plan: DeploymentPlan) -> None:
    """Print the plan on standard error, before asking for confirmation."""
    click.echo(_totals(plan), err=True)
    for change in plan.changes:
        word = _WORDS.get(change.action, change.action)
        effect = _effect(change)
        click.echo(
            f"  {word:<7} {one_line(change.resource)} ({one_line(change.type)}){effect and f': {one_line(effect)}'}",
            err=True,
        )
    for change in plan.changes:
        if change.leaves_data:
            click.echo(f"DATA: {one_line(change.resource)} is kept with its data, but no longer used", err=True)
    if plan.costs:
        click.echo(f"When idle: about {plan.costs.total_usd:.0f} USD a month (see `lakegate aws plan`)", err=True)
    for text in plan.warnings:
        click.echo(text, err=True)


def _show_deployed(done: Deployed, command: str) -> None:
    if done.declined:
        say(f"[bold yellow]declined[/]  {safe(done.stack)}; nothing was changed")
        return
    _print_notes(done.notes)
    word = "deployed" if done.changed else "up to date"
    say(f"[bold green]{word}[/]  {safe(done.stack)}" + ("" if done.changed else "; nothing had to change"))
    _say_facts(done.outputs)
    if done.smoke:
        say(f"  [dim]{'smoke':<14}[/] test file published and reverted in {done.smoke.seconds:.0f} s")
    next_commands(("See its status", command))


def _show_image(built: BuiltImage, command: str, *, is_new: bool) -> None:
    say(f"[bold green]{'built' if is_new else 'up to date'}[/]  {safe(built.uri)}")
    facts = {
        "for": f"{built.kind} on {built.architecture}",
        "tag": built.tag,
        "built on": built.base or "unknown",
        "built by": built.builder or "unknown",
        "size": size(built.size_bytes),
        "pushed": moment(built.pushed_at),
    }
    _say_facts(facts)
    next_commands(("Run it", command))


def _show_status(status: Status) -> None:
    style = "green" if status.state.endswith("_COMPLETE") and "ROLLBACK" not in status.state else "red"
    say(f"[bold]{safe(status.stack)}[/]  [{style}]{safe(status.state)}[/]")
    if status.reason:
        say(f"  {safe(status.reason)}")
    _say_facts(status.outputs)
    say(*(f"  [dim]{name:<14}[/] {markup}" for name, markup in _parts(status)))
    if status.errors:
        say("", "[bold]Last errors[/]")
        say(*(f"  [dim]{moment(error.time)}[/] {safe(error.text)}" for error in status.errors))


def _parts(status: Status) -> Iterator[tuple[str, str]]:
    """Yield the parts of a deployment with the markup of their state."""
    if status.waiting is not None:
        yield "queue", f"{count(status.waiting)} waiting, {count(status.in_flight)} in progress or postponed"
    if status.dead is not None:
        yield "dead letters", f"[red]{counted(status.dead, 'notification')} given up[/]" if status.dead else "empty"
    if status.put_off:
        yield "postponed", f"{moment(status.put_off.time)} {safe(status.put_off.text)}"
    for one in status.servers:
        style = "red" if one.running < one.wanted else "default"
        stopped = f"; the last one stopped {one.stopped}" if one.stopped else ""
        runs = f"runs {one.running} of {counted(one.wanted, 'task')}" if one.wanted else "is stopped"
        yield "server", f"[{style}]{safe(one.name)} {runs}[/]{safe(stopped)}"
    if status.function:
        facts = status.function
        code = f"{facts.state}, {facts.runtime}, code {facts.code_sha256[:12]}, changed {facts.modified_at}"
        yield "function", safe(code)
    if status.missing:
        yield "missing", f"[red]{safe(', '.join(status.missing))}[/]"
    if status.drifted is not None:
        yield "drift", f"[yellow]{safe(', '.join(status.drifted))}[/]" if status.drifted else "none"


def _announce_deletion(found: DeploymentInventory, *, keep_data: bool) -> None:
    """Print on standard error what will be deleted and what will be kept."""
    if found.state is not None:
        click.echo(f"Stack {found.stack} ({found.state}), {counted(len(found.resources), 'resource')}:", err=True)
        for one in found.resources:
            click.echo(f"  {one_line(one.resource)} ({one_line(one.type)}) {one_line(one.id)}", err=True)
    for code in found.code:
        click.echo(f"Function zips: {_bucket(code)}", err=True)
    for name in found.repositories:
        click.echo(f"Container images: repository {one_line(name)}", err=True)
    if found.builder:
        click.echo(f"Image builder: stack {one_line(found.builder)}", err=True)
    data = [
        *(f"bucket {_bucket(one)}" for one in found.data),
        *(f"table {name}" for name in found.tables),
        *(f"database {name}" for name in found.databases),
        *(f"snapshot {name}" for name in found.snapshots),
    ]
    for line in data:
        click.echo(f"{'Kept' if keep_data else 'DATA'}: {one_line(line)}", err=True)


def _show_destroyed(found: DeploymentInventory, *, deleted: bool, keep_data: bool) -> None:
    if not deleted:
        say(f"[bold green]nothing to delete[/]  {safe(found.stack)} doesn't exist")
        return
    say(f"[bold green]deleted[/]  {safe(found.stack)}")
    if keep_data and found.has_data:
        say("  [dim]its data was kept[/]")


def _show_costs(costs: Costs | None) -> None:
    if costs is None:
        return
    say("", f"[bold]When idle[/]: about {costs.total_usd:.0f} USD a month")
    rows = ((one.part, "unknown" if one.usd is None else f"{one.usd:.2f}", one.note) for one in costs.parts)
    show_rows(("part", "USD a month", ""), rows)
    say(*(f"  [dim]-{one.usd:.0f} USD[/]  {safe(one.option)}: {safe(one.what)}" for one in costs.smaller))
    say(f"  [dim]Prices in {safe(costs.prices_of)}: {safe(costs.source)}; other regions differ[/]")


def _print_notes(notes: tuple[str, ...]) -> None:
    """Print notes on standard error, whatever the format of standard output."""
    for note in notes:
        click.echo(f"note: {one_line(note)}", err=True)


def _totals(plan: DeploymentPlan) -> str:
    amounts = {word: sum(change.action == action for change in plan.changes) for action, word in _WORDS.items()}
    summary = ", ".join(f"{word} {number}" for word, number in amounts.items() if number)
    return f"{'New stack' if plan.is_new else 'Stack'} {plan.stack}: {summary or counted(len(plan.changes), 'change')}"


def _effect(change: ResourceChange) -> str:
    replaced = {"true": "replaced", "conditional": "may be replaced"}.get(change.replacement or "", "")
    return ": ".join(filter(None, (replaced, ", ".join(change.properties))))


def _bucket(content: BucketContent) -> str:
    return f"{content.name}, {counted(content.objects, 'version')} of objects, {size(content.size_bytes)}"


def _say_facts(facts: dict[str, str]) -> None:
    say(*(f"  [dim]{safe(name):<14}[/] {safe(value)}" for name, value in facts.items()))
