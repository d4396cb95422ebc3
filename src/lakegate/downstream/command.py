"""A command that runs for each event, with the event as JSON on standard input and its main facts in variables.

There's no shell, and no part of an event becomes an argument. The command's output goes to lakegate's log, without
secrets.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from lakegate.config import CommandDownstream
from lakegate.downstream import DownstreamContext
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import DownstreamEvent
from lakegate.model.run import Run
from lakegate.progress import one_line, without_secrets

_LOG = logging.getLogger(__name__)
_LONGEST_LINE = 1000
_MOST_LINES = 200
_MOST_BYTES = 256 * 1024
_GRACE_S = 5.0
_REFUSED_EXIT_CODE = 65
"""Exit code of a command that would refuse the same event again (``EX_DATAERR`` in ``sysexits.h``)."""


class CommandTarget:
    """Implements :class:`lakegate.ports.Downstream` with a process.

    Args:
        timeout_s: Seconds before the command and all processes that it started are stopped.
    """

    def __init__(self, name: str, argv: Sequence[str], cwd: Path, timeout_s: float) -> None:
        self._name = name
        self._argv = tuple(argv)
        self._cwd = cwd
        self._timeout_s = timeout_s

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Run the command. Exit code 0 means that the event arrived.

        Raises:
            DownstreamUnavailableError: It can't be run, takes too long, or exits with another code.
            DownstreamError: It exits with 65, so it would refuse the event again.
        """
        del run
        # Files instead of pipes: nothing has to be read while it runs, and it may exit without reading its input.
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as output:
            stdin.write(event.model_dump_json().encode())
            stdin.seek(0)
            code = self._run(stdin, output, {**os.environ, **variables(self._name, event)})
            self._log(output)
        if code == _REFUSED_EXIT_CODE:
            raise DownstreamError(f"{self._argv[0]} refused the event (exit code {_REFUSED_EXIT_CODE}).")
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise DownstreamUnavailableError(f"{self._argv[0]} failed ({how}); its output is in the log.")

    def test(self) -> str:
        """Look for the program without running it."""
        if not self._cwd.is_dir():
            raise DownstreamError(f"Folder {self._cwd} doesn't exist.")
        found = shutil.which(self._argv[0]) if "/" not in self._argv[0] else shutil.which(self._cwd / self._argv[0])
        if found is None:
            raise DownstreamError(f"Program {self._argv[0]} can't be found, or isn't executable.")
        return f"Found {found}; it wasn't run."

    def _run(self, stdin: IO[bytes], output: IO[bytes], env: Mapping[str, str]) -> int:
        try:
            # Its own session: Ctrl-C reaches only lakegate, and all its processes can be stopped together.
            process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                env=env,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            # Retryable: another machine may have the program.
            raise DownstreamUnavailableError(f"{self._argv[0]} can't be run: {error.strerror}.") from None
        try:
            return process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            text = f"{self._argv[0]} took longer than {self._timeout_s:g} s, and was stopped."
            raise DownstreamUnavailableError(text) from None
        finally:
            _stop(process)

    def _log(self, output: IO[bytes]) -> None:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(size - _MOST_BYTES, 0))
        lines = output.read().decode("utf-8", errors="replace").splitlines()
        for line in lines[-_MOST_LINES:]:
            text = one_line(without_secrets(line))[:_LONGEST_LINE]
            _LOG.info("%s: %s", self._name, text, extra={"facts": {"downstream": self._name}})


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process, if it still runs, with all processes that it started."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # gone, or another user's, such as sudo's
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def variables(name: str, event: DownstreamEvent) -> dict[str, str]:
    """Return the environment variables for an event. Tables are separated by spaces, which no name contains."""
    facts = {
        "LAKEGATE_EVENT": event.kind,
        "LAKEGATE_EVENT_DOWNSTREAM": name,
        "LAKEGATE_EVENT_ID": event.event_id,
        "LAKEGATE_EVENT_RUN_ID": event.run_id,
        "LAKEGATE_EVENT_REF": event.ref,
        "LAKEGATE_EVENT_COMMIT": event.commit,
        "LAKEGATE_EVENT_TABLES": " ".join(table.table for table in event.tables),
        "LAKEGATE_EVENT_CREATED": " ".join(table.table for table in event.tables if table.created),
        "LAKEGATE_EVENT_DROPPED": " ".join(table.table for table in event.tables if table.dropped),
    }
    return {key: value or "" for key, value in facts.items()}


def make(name: str, settings: CommandDownstream, context: DownstreamContext) -> CommandTarget:
    """Return the command that a section of the settings describes."""
    return CommandTarget(name, settings.argv, context.home / (settings.cwd or ""), settings.timeout_s)
