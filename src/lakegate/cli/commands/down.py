"""Stop the local stack."""

from __future__ import annotations

from pathlib import Path

import click

from lakegate.cli.app import App, command
from lakegate.cli.commands.demo import AWS_FOLDER
from lakegate.cli.output import echo_json, safe, say
from lakegate.config import HOME_NAME
from lakegate.local.ministack import MiniStack


@command("down", examples=("lakegate down",))
def down(app: App) -> None:
    """Stop the local stack, and the one of `lakegate demo --aws`. Tables, branches and runs are kept."""
    demo = app.folder() / HOME_NAME / AWS_FOLDER
    folders = (app.folder(), demo) if demo.is_dir() else (app.folder(),)
    stopped = list(dict.fromkeys(name for folder in folders for name in _stop(app, folder)))
    if app.json:
        echo_json({"stopped": stopped})
    elif stopped:
        say(f"[bold]stopped[/]  {safe(', '.join(stopped))}")
    else:
        click.echo("Nothing was running.", err=True)


def _stop(app: App, folder: Path) -> tuple[str, ...]:
    stopped = app.local_stack(folder, app.settings(), app.narrator).down()
    return (*stopped, "ministack") if MiniStack(folder, app.narrator).stop() else stopped
