"""``lakegate up``, ``down`` and ``status``."""

from __future__ import annotations

from pathlib import Path

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.commands.demo import AWS_FOLDER
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json, safe, say
from lakegate.cli.render.stack import service_payload, show_services
from lakegate.config import HOME_NAME
from lakegate.local import prepare
from lakegate.local.ministack import MiniStack


@command("up", examples=("lakegate up", "lakegate up --prepare-only", "lakegate --home ~/lake up"))
@click.option("--prepare-only", is_flag=True, help="Only fetch the parts, so that a later start needs no network.")
@output_option()
@pass_app
def up(app: App, /, *, prepare_only: bool, output: str) -> None:
    """Start the local stack: a Nessie catalog and a Spark server, on this machine only.

    Commands that need it start it themselves. The first start fetches its parts.
    """
    if prepare_only:
        prepare(app.narrator)
        return
    app.stack().up()
    _show(app, output)


@command("down", examples=("lakegate down",))
@output_option()
@pass_app
def down(app: App, /, *, output: str) -> None:
    """Stop the local stack, and that of `lakegate demo --aws`. Tables, branches and runs stay."""
    stopped = tuple(dict.fromkeys(name for folder in _folders(app) for name in _stop(app, folder)))
    if output == "json":
        echo_json({"stopped": list(stopped)})
    elif stopped:
        say(f"[bold]stopped[/]  {safe(', '.join(stopped))}")
    else:
        click.echo("Nothing was running.", err=True)


@command("status", examples=("lakegate status", "lakegate status -o json"))
@output_option()
@pass_app
def status(app: App, /, *, output: str) -> None:
    """Show what of the local stack is running. Starts nothing."""
    _show(app, output)


def _folders(app: App) -> tuple[Path, ...]:
    """Return the project's folder, and that of its demo on AWS where there is one."""
    folder = app.folder()
    demo = folder / HOME_NAME / AWS_FOLDER
    return (folder, demo) if demo.is_dir() else (folder,)


def _stop(app: App, folder: Path) -> tuple[str, ...]:
    stopped = app.local_stack(folder, app.settings(), app.narrator).down()
    return (*stopped, "ministack") if MiniStack(folder, app.narrator).stop() else stopped


def _show(app: App, output: str) -> None:
    services = app.stack().status()
    if output == "json":
        echo_json({"home": str(app.folder()), "services": [service_payload(service) for service in services]})
    else:
        show_services(services)
