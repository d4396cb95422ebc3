"""Entry point of ``lakegate``. Imports click and the registry only; each command brings what it needs."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import click

from lakegate import __version__
from lakegate.cli.commandline import PROGRAM, Root
from lakegate.errors import ExitCode


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 audit failed, 2 wrong input, 3 try again, 4 outcome unknown, 70 internal error, "
    "130 interrupted.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Write–audit–publish for Iceberg lakehouses.

    Files are written to a branch, audited there, and published to main in one commit, or not at all.
    Start with: lakegate demo
    """


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        # Data may hold characters that the terminal's encoding lacks; that must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # One command is over before garbage could pile up; looking for it among the libraries' objects takes 0.2 s.
    gc.set_threshold(200_000, 50, 100)
    try:
        cli.main(prog_name=PROGRAM)
    except SystemExit as end:
        _leave(end.code)
    _leave(ExitCode.OK)


def _leave(code: str | int | None) -> NoReturn:
    """End the process without taking the libraries apart object by object, which takes another half second.

    All that must be closed has been, by the commands' own context managers.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
