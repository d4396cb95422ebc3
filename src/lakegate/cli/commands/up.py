"""Start the local stack (Nessie and Spark)."""

from __future__ import annotations

import click

from lakegate.cli.app import App, command
from lakegate.cli.commands.status import show_services
from lakegate.cli.output import echo_json
from lakegate.local import prepare


@command("up", examples=("lakegate up", "lakegate up --prepare-only", "lakegate --home ~/lake up"))
@click.option("--prepare-only", is_flag=True, help="Only download what it needs, so that it can start offline later.")
def up(app: App, /, *, prepare_only: bool) -> None:
    """Start the local stack: a Nessie catalog and a Spark server, reachable from this machine only.

    Commands that need the stack start it themselves. The first start downloads what it needs.
    """
    if prepare_only:
        jars = prepare(app.narrator)
        if app.json:
            echo_json({"jars": [str(path) for path in jars.values()]})
        return
    app.stack().up()
    show_services(app)
