"""Start the local stack (Nessie and Spark)."""

from __future__ import annotations

import click

from lakegate.cli.app import App, command
from lakegate.cli.commands.status import show_services
from lakegate.cli.output import echo_json
from lakegate.config import FILE_NAME, LOCAL_SQL, load_settings
from lakegate.errors import InputError
from lakegate.local import prepare


@command("up", examples=("lakegate up", "lakegate up --catalog sql", "lakegate up --prepare-only"))
@click.option("--prepare-only", is_flag=True, help="Only download what it needs, so that it can start offline later.")
def up(app: App, /, *, prepare_only: bool) -> None:
    """Start the local stack: a Nessie catalog and a Spark server, reachable from this machine only.

    Commands that need the stack start it themselves. The first start downloads what it needs.

    With --catalog sql, a new project does without Nessie: its catalog is a file, as lakegate.toml says from then on.
    """
    if app.catalog == LOCAL_SQL:
        _choose_sql(app)
    if prepare_only:
        jars = prepare(app.narrator, artifacts=app.stack().artifacts)
        if app.json:
            echo_json({"jars": [str(path) for path in jars.values()]})
        return
    app.stack().up()
    show_services(app)


def _choose_sql(app: App) -> None:
    """Write down that the project's catalog is the local SQL catalog."""
    file = app.folder() / FILE_NAME
    known = load_settings(app.folder()).catalog
    if known.type == LOCAL_SQL:
        return
    if not known.needs_nessie or app.stack().has_catalog():
        raise InputError(
            f"The project in {app.folder()} has another catalog already"
            f"{f', {known.place}' if known.place else ', its local Nessie'}.",
            hint="Start a project in another folder: lakegate --home DIR up --catalog sql",
        )
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if "[catalog]" in text:
        raise InputError(
            f"{file} has a section [catalog] already.", hint=f'Set type = "{LOCAL_SQL}" there, then: lakegate up'
        )
    file.write_text(f'{text}\n[catalog]\ntype = "{LOCAL_SQL}"\n'.lstrip(), encoding="utf-8")
