"""``lakegate journal``."""

from __future__ import annotations

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.keeping import show_journal_status, show_rebuilt, status_payload


@group("journal", examples=("lakegate journal status", "lakegate journal rebuild"))
def journal() -> None:
    """Show the journal of runs; rebuild it from the catalog's history.

    The catalog is the truth of what is published. The journal remembers it, so that it need not be looked for, and
    what is under way.
    """


@journal.command("status", examples=("lakegate journal status", "lakegate journal status -o json"))
@output_option()
@pass_app
def status(app: App, /, *, output: str) -> None:
    """Show where the journal is and what it knows. Starts nothing."""
    with app.lake() as lake:
        found = lake.journal_status()
    if output == "json":
        echo_json(status_payload(found))
    else:
        show_journal_status(app, found)


@journal.command("rebuild", examples=("lakegate journal rebuild", "lakegate journal rebuild -o json"))
@output_option()
@pass_app
def rebuild(app: App, /, *, output: str) -> None:
    """Learn again from main's history what was published.

    For a journal that was lost or restored from an old copy. Runs that it still knows keep all that is known of them;
    of others it learns what their commits tell.
    """
    with app.lake() as lake:
        found = lake.rebuild_journal()
    if output == "json":
        echo_json(found.model_dump(mode="json"))
    else:
        show_rebuilt(found)
