"""Show the settings in effect and where each comes from."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from lakegate.cli.app import App, group
from lakegate.cli.output import cell, echo_json, show_rows
from lakegate.config import ENV_PREFIX, FILE_NAME, OPENLINEAGE
from lakegate.model.secrets import SecretReference
from lakegate.progress import redact


@group("config", examples=("lakegate admin config show", "lakegate admin config path"))
def config() -> None:
    """Show the settings in effect and where each comes from."""


@config.command(
    "show", examples=("lakegate admin config show", "LAKEGATE_ENGINE_URL=sc://host:15002 lakegate admin config show")
)
def show_config(app: App) -> None:
    """Show every setting, its value and where it comes from. Secrets are shown as references only."""
    tree = app.settings().model_dump(mode="json")
    if tree["openlineage"] is not None:
        # Settings lists the section among the downstream systems, too.
        tree["downstream"].pop(OPENLINEAGE)
        tree["openlineage"].pop("type")
    values = {key: _without_secret(key, value) for key, value in _flat(tree)}
    path = app.folder() / FILE_NAME
    text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
    in_file = {key for key, _ in _flat(tomllib.loads(text))}
    variables = dict(_in_variables(tree))
    flags = {key for key, value in app.flags().items() if value is not None}
    origins = {
        key: "flag" if key in flags else variables.get(key) or (FILE_NAME if key in in_file else "default")
        for key in values
    }
    if app.json:
        echo_json({key: {"value": value, "origin": origins[key]} for key, value in values.items()})
    else:
        rows = ((key, "" if value is None else cell(value), origins[key]) for key, value in values.items())
        show_rows(("setting", "value", "origin"), rows)


@config.command("path", examples=("lakegate admin config path", "$EDITOR $(lakegate admin config path)"))
def config_path(app: App) -> None:
    """Print the path of this project's lakegate.toml, which may not exist."""
    path = app.folder() / FILE_NAME
    if app.json:
        echo_json({"path": str(path), "exists": path.is_file(), "home": str(app.folder())})
    else:
        click.echo(path)


def _flat(tree: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = (*prefix, f'"{key}"' if "." in key else key)
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        else:
            yield ".".join(path), value


def _in_variables(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys that variables set, each with its variable. One that holds a section as JSON sets several."""
    for section, settings in tree.items():
        for name, value in settings.items() if isinstance(settings, Mapping) else ():
            variable = f"{ENV_PREFIX}{section}_{name}".upper()
            if variable in os.environ and section != "tables":
                given = json.loads(os.environ[variable]) if isinstance(value, Mapping) else value
                yield from ((key, variable) for key, _ in _flat({section: {name: given}}))


def _without_secret(key: str, value: Any) -> Any:
    if key.endswith(("token", "password", "secret")) and value is not None:
        try:
            SecretReference.parse(str(value))
        except ValueError:
            return "(hidden: not a reference such as env:NAME)"
    return redact(value) if isinstance(value, str) else value
