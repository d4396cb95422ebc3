"""Whether standard error is a log: by the command line, else by the settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakegate.cli.logs import Logs
from lakegate.errors import LakegateError

if TYPE_CHECKING:
    import click

    from lakegate.cli.app import App

_SECRETS_OF_OTHERS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
_SHORTEST_SECRET = 4
"""Characters; leaving out every shorter text would leave nothing to read."""


def begin(app: App, ctx: click.Context | None) -> None:
    """Turn standard error into a log when that is wanted, until the log is closed. Idempotent.

    Args:
        app: The invocation; what it was given and its settings say what is wanted.
        ctx: The command that runs, or was typed wrong; ``None`` when that is not known.
    """
    if app.logs is None and _wants_json(app):
        command = ctx.command_path.removeprefix(ctx.find_root().command_path).strip() if ctx else ""
        app.logs = Logs(command or None, quiet=app.quiet, debug=app.debug, hidden=tuple(_secrets(app)))


def _wants_json(app: App) -> bool:
    given = app.log_format or _format_in(app.words)
    if given is not None:
        return given == "json"
    if not _settings_may_say(app):
        return False
    try:
        return app.settings().log.format == "json"
    except LakegateError:
        return os.environ.get("LAKEGATE_LOG_FORMAT") == "json"


def _format_in(words: tuple[str, ...]) -> str | None:
    """Return the format given in words that could not be parsed."""
    joined = f" {' '.join(words)} ".replace("--log-format=", "--log-format ")
    return next((kind for kind in ("json", "text") if f" --log-format {kind} " in joined), None)


def _settings_may_say(app: App) -> bool:
    """Tell whether it is worth loading the settings, which takes longer than telling of a mistyped word."""
    here = Path.cwd()
    folders = (app.home,) if app.home else (here, *here.parents)
    return "LAKEGATE_LOG_FORMAT" in os.environ or any((folder / "lakegate.toml").is_file() for folder in folders)


def _secrets(app: App) -> Iterator[str]:
    try:
        references = list(_references(app.settings().model_dump(mode="json")))
    except LakegateError:
        references = []
    for variable in (*_SECRETS_OF_OTHERS, *references):
        secret = os.environ.get(variable, "")
        if len(secret) >= _SHORTEST_SECRET:
            yield secret


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str) and value.startswith("env:"):
        yield value.removeprefix("env:")
