"""What the commands of one invocation share: the global options, and access to the lake."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakegate.errors import ConfigurationError, InputError, LakegateError
from lakegate.progress import redact

if TYPE_CHECKING:
    from lakegate.cli.stderr import Logs
    from lakegate.components import Components
    from lakegate.config import Settings
    from lakegate.lake import Lake
    from lakegate.local.stack import LocalStack
    from lakegate.model.run import Run
    from lakegate.ports import Narrator

__all__ = ["App", "redact"]

_LEAST_ADDRESS_SPACE = 1 << 30
"""Bytes. Spark's client and Arrow map 0.9 GB before any work."""


def _connect(*args: Any, **options: Any) -> Lake:
    from lakegate.lake import connect

    return connect(*args, **options)


def _local_stack(*args: Any) -> LocalStack:
    from lakegate.components import local_stack

    return local_stack(*args)


def _generate(folder: Path, **options: Any) -> tuple[Path, ...]:
    from lakegate.sources.synthetic import generate

    return generate(folder, **options)


@dataclass
class App:
    """State of one invocation, click's ``ctx.obj``. The global options fill it in while they are parsed.

    Attributes:
        home: The project's folder; ``None`` to search for it upwards from the current one.
        engine: Spark Connect address that overrides the settings.
        catalog: Nessie address that overrides the settings.
        log_format: ``text`` or ``json`` on standard error; ``None`` for the settings' choice.
        logs: Standard error as JSON lines, while it is that.
        output: The command's ``--output``, ``table`` until it is parsed.
        done: What the command has irrevocably done, as a sentence, in case its output fails.
        connect: Opens the lake. Tests replace it, and the next two.
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
    done: str | None = None
    connect: Callable[..., Lake] = field(default=_connect)
    local_stack: Callable[..., LocalStack] = field(default=_local_stack)
    generate: Callable[..., tuple[Path, ...]] = field(default=_generate)

    @property
    def json(self) -> bool:
        """Whether standard output is JSON."""
        return self.output == "json"

    @cached_property
    def narrator(self) -> Narrator:
        """Shows progress on standard error, if that is a terminal or a log."""
        if self.logs is not None:
            return self.logs.narrator
        from lakegate.cli.stderr import make_narrator

        return make_narrator(quiet=self.quiet)

    def begin_log(self, ctx: click.Context | None) -> None:
        """Turn standard error into a log if options or settings say so, until the log is closed. Idempotent."""
        if self.logs is not None or not self._wants_json_log():
            return
        from lakegate.cli.stderr import Logs, secret_variables

        command = ctx.command_path.removeprefix(ctx.find_root().command_path).strip() if ctx else ""
        try:
            settings = self.settings().model_dump(mode="json")
        except LakegateError:
            settings = {}
        self.logs = Logs(command or None, quiet=self.quiet, debug=self.debug, hidden=secret_variables(settings))

    def _wants_json_log(self) -> bool:
        # Arguments that couldn't be parsed may name the format, too.
        words = f" {' '.join(self.words)} ".replace("--log-format=", "--log-format ")
        given = self.log_format or next((kind for kind in ("json", "text") if f" --log-format {kind} " in words), None)
        if given is not None:
            return given == "json"
        here = Path.cwd()
        folders = (self.home,) if self.home else (here, *here.parents)
        # Loading the settings takes longer than reporting a typo, so it must be worth it.
        if "LAKEGATE_LOG_FORMAT" not in os.environ and not any((one / "lakegate.toml").is_file() for one in folders):
            return False
        try:
            return self.settings().log.format == "json"
        except LakegateError:
            return os.environ.get("LAKEGATE_LOG_FORMAT") == "json"

    def has_ended(self, run: Run) -> None:
        """Remember how a run ended: whatever fails from now on must not hide it."""
        self.done = f"Run {run.run_id} into {run.table} is {run.status}."

    def lake(self, *, begins: bool = False) -> Lake:
        """Open the lake, as a context manager.

        Args:
            begins: Whether the command may be a project's first.
        """
        _require_address_space()
        if not self.is_in_project():
            if not begins:
                raise self.no_project()
            self.narrator.note(f"New project in {self.folder()}: tables and history go to .lakegate/ there.")
        if self.logs is None:
            _quieten_libraries(debug=self.debug)
        context = click.get_current_context(silent=True)
        loads = context is not None and context.info_name in ("watch", "backfill")
        return self.connect(
            self.home,
            engine=self.engine,
            catalog=self.catalog,
            narrator=self.narrator,
            orchestrator=context.info_name if context is not None and loads else "cli",
        )

    def components(self) -> Components:
        """Return the parts of the lake, for commands that aren't part of :class:`~lakegate.lake.Lake`. Close them."""
        from lakegate.components import Components

        if not self.is_in_project():
            raise self.no_project()
        if self.logs is None:
            _quieten_libraries(debug=self.debug)
        return Components(self.folder(), self.settings(), session=None, narrator=self.narrator)

    def stack(self) -> LocalStack:
        """Return the handle of this project's local stack, without starting it."""
        return self.local_stack(self.folder(), self.settings(), self.narrator)

    def catalog_answers(self) -> bool:
        """Return whether the catalog is remote or already running."""
        if self.settings().catalog.uri is not None:
            return True
        return any(service.name == "nessie" and service.state == "running" for service in self.stack().status())

    def is_in_project(self) -> bool:
        """Return whether there is a project already, or the settings name a catalog elsewhere."""
        from lakegate.config import is_project

        return self.home is not None or is_project(self.folder()) or self.settings().catalog.uri is not None

    def no_project(self) -> ConfigurationError:
        """Return the error of a command that needs a project."""
        return ConfigurationError(
            f"There's no lakegate project in {self.folder()}, nor in a folder above it.",
            hint="Change to your project's folder, or name it with --home. To begin a project here: lakegate ingest "
            "TABLE FILES, or lakegate demo",
        )

    def folder(self) -> Path:
        """Return the project's folder."""
        from lakegate.config import find_home

        return self.home or find_home()

    def settings(self) -> Settings:
        """Return the settings in effect."""
        from lakegate.config import load_settings

        return load_settings(self.folder(), flags=self.flags())

    def flags(self) -> dict[str, str | None]:
        """Return the settings that global options override, by dotted key."""
        return {"engine.url": self.engine, "catalog.uri": self.catalog, "log.format": self.log_format}

    def command_without(self, flag: str) -> str:
        """Return the command line that is running, without ``flag``, to be typed again; secrets are left out."""
        return redact(shlex.join(["lakegate", *(word for word in self.words if word != flag)]))

    def command(self, *words: str) -> str:
        """Return a lakegate command to type next, quoted for a shell, that reaches the same lake as this one."""
        prefix = ["lakegate"]
        for option, value in (("--home", self.home), ("--engine", self.engine), ("--catalog", self.catalog)):
            if value is not None and redact(str(value)) == str(value):
                prefix += [option, str(value)]
        return shlex.join([*prefix, *words])


def _require_address_space() -> None:
    """Refuse a limit (``ulimit -v``) under which numpy's OpenBLAS exits with 1, which here means a failed audit."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if resource.RLIM_INFINITY != limit < _LEAST_ADDRESS_SPACE:
        raise InputError(
            f"This process is limited to {limit >> 20:,} MiB of virtual memory; lakegate needs "
            f"{_LEAST_ADDRESS_SPACE >> 20:,} MiB.",
            hint="Raise the limit: ulimit -v unlimited",
        )


def _quieten_libraries(*, debug: bool) -> None:
    # Libraries' logs are for developers; users get our own errors and progress.
    import logging
    import warnings

    if debug:
        logging.basicConfig(level=logging.INFO)
        return
    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
