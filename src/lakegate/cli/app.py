"""What all commands of one invocation share: the global options, and how to reach the lake."""

# ruff: noqa: PLC0415 - a command loads only what it needs
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakegate.narration import redact

if TYPE_CHECKING:
    from lakegate.cli.logs import Logs
    from lakegate.config import Settings
    from lakegate.lake import Lake
    from lakegate.local.stack import LocalStack
    from lakegate.protocols import Narrator

__all__ = ["App", "pass_app", "redact"]


def _connect(*args: Any, **options: Any) -> Lake:
    from lakegate.lake import connect

    return connect(*args, **options)


def _local_stack(*args: Any) -> LocalStack:
    from lakegate.wiring import local_stack

    return local_stack(*args)


def _generate(folder: Path, **options: Any) -> tuple[Path, ...]:
    from lakegate.sources.synthetic import generate

    return generate(folder, **options)


@dataclass
class App:
    """State of one invocation, click's ``ctx.obj``. The global options fill it in while they are parsed.

    Attributes:
        home: The project's folder as given; ``None`` to look for it upwards from the current one.
        engine: Spark Connect address that overrides the settings.
        catalog: Nessie address that overrides the settings.
        quiet: No narration, even on a terminal.
        debug: Tracebacks for all errors, and logs.
        log_format: What standard error holds, ``text`` or ``json``; ``None`` for what the settings say.
        logs: Standard error as lines of JSON, while it is that.
        output: Format asked for by the command, ``table`` until one is parsed.
        words: The command line's arguments as given.
        connect: Opens the lake; tests put a fake here. So with the other two.
        local_stack: Makes the local stack's handle from home, settings and narrator.
        generate: Writes synthetic files.
    """

    home: Path | None = None
    engine: str | None = None
    catalog: str | None = None
    quiet: bool = False
    debug: bool = False
    log_format: str | None = None
    logs: Logs | None = None
    output: str = "table"
    words: tuple[str, ...] = ()
    connect: Callable[..., Lake] = field(default=_connect)
    local_stack: Callable[..., LocalStack] = field(default=_local_stack)
    generate: Callable[..., tuple[Path, ...]] = field(default=_generate)

    @cached_property
    def narrator(self) -> Narrator:
        """Where work in progress is told of: standard error, when that is a terminal or a log."""
        if self.logs is not None:
            return self.logs.narrator
        from lakegate.cli.narration import make_narrator

        return make_narrator(quiet=self.quiet)

    def lake(self) -> Lake:
        """Open the lake. Use as a context manager."""
        if self.logs is None:
            _quieten_libraries(debug=self.debug)
        return self.connect(self.home, engine=self.engine, catalog=self.catalog, narrator=self.narrator)

    def stack(self) -> LocalStack:
        """Return the handle of this project's local stack; starts nothing."""
        return self.local_stack(self.folder(), self.settings(), self.narrator)

    def catalog_answers(self) -> bool:
        """Tell whether the catalog can be asked without starting anything: it is another one's, or runs already."""
        if self.settings().catalog.uri is not None:
            return True
        return any(service.name == "nessie" and service.state == "running" for service in self.stack().status())

    def folder(self) -> Path:
        """Return the project's folder."""
        from lakegate.config import find_home

        return self.home or find_home()

    def settings(self) -> Settings:
        """Return the settings in force."""
        from lakegate.config import load_settings

        return load_settings(self.folder(), flags=self.flags())

    def flags(self) -> dict[str, str | None]:
        """Return the settings that global options override, by dotted key."""
        return {"engine.url": self.engine, "catalog.uri": self.catalog, "log.format": self.log_format}

    def command(self, *words: str) -> str:
        """Return a lakegate command to type next, quoted for a shell, that reaches the same lake as this one."""
        prefix = ["lakegate"]
        given = (("--home", self.home), ("--engine", self.engine), ("--catalog", self.catalog))
        for option, value in given:
            if value is not None and redact(str(value)) == str(value):
                prefix += [option, str(value)]
        return shlex.join([*prefix, *words])


def _quieten_libraries(*, debug: bool) -> None:
    # What libraries have to say is for developers; people get errors and narration in our words.
    import logging
    import warnings

    if debug:
        logging.basicConfig(level=logging.INFO)
        return
    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


pass_app = click.make_pass_decorator(App)
