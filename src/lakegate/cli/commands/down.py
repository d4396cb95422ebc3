"""Stop the local stack."""

from __future__ import annotations

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, safe, say


@command("down", examples=("lakegate down",))
def down(app: App) -> None:
    """Stop the local stack. Tables, branches and runs are kept."""
    stopped = app.local_stack(app.folder(), app.settings(), app.narrator).down()
    if app.json:
        echo_json({"stopped": stopped})
    elif stopped:
        say(f"[bold]stopped[/]  {safe(', '.join(stopped))}")
    else:
        click.echo("Nothing was running.", err=True)
