"""Standard error as a log: nothing but one JSON object per line, whoever writes to it."""

from __future__ import annotations

import io
import logging
import sys
import traceback
from collections.abc import Mapping
from time import monotonic
from typing import Any

from lakegate.narration import LogNarrator, about


class Logs:
    """Standard error while it is a log. Narration, the logs and warnings of libraries and any other text become lines.

    Args:
        command: The command's name, such as ``branch list``; ``None`` when there is none.
        quiet: Write warnings and errors only.
        debug: Write what libraries say beside their warnings, and tracebacks.
        hidden: Secrets, which are never written.
    """

    def __init__(self, command: str | None, *, quiet: bool, debug: bool, hidden: tuple[str, ...]) -> None:
        self.narrator = _Narrator(sys.stderr, level="warning" if quiet else "info", hidden=hidden, command=command)
        self._debug = debug
        self._began = monotonic()
        self._stderr = sys.stderr
        self._text = _Lines(self.narrator)
        self._handler = self.narrator.handler()
        self._levels = {logging.getLogger(): logging.INFO if debug else logging.WARNING}
        self._levels[logging.getLogger("lakegate")] = logging.INFO
        self._levels_before = {logger: logger.level for logger in self._levels}
        self._open()

    def _open(self) -> None:
        sys.stderr = self._text
        logging.getLogger().addHandler(self._handler)
        logging.captureWarnings(capture=True)
        for logger, level in self._levels.items():
            logger.setLevel(level)

    def error(self, facts: Mapping[str, Any], exit_code: int, error: BaseException) -> None:
        """Write what ended the command.

        Args:
            facts: Code, message, hint and context, as :meth:`lakegate.errors.LakegateError.to_dict` returns them.
            exit_code: How the command exits.
            error: The exception; its traceback is written when debugging.
        """
        told = {key: facts[key] for key in ("code", "message", "hint", "context")}
        if self._debug:
            told["exception"] = "".join(traceback.format_exception(error))
        known = facts["context"]
        run = self._about_the_run() | {key: known[key] for key in ("run_id", "table", "branch") if key in known}
        self.narrator.line(logging.ERROR, facts["message"], **run, **told, exit_code=exit_code)

    def close(self, exit_code: int) -> None:
        """Write how the command ended, and give standard error back."""
        self._text.finish()
        seconds = round(monotonic() - self._began, 3)
        event = f"Ended with exit code {exit_code}"
        self.narrator.line(logging.INFO, event, **self._about_the_run(), exit_code=exit_code, seconds=seconds)
        for logger, level in self._levels_before.items():
            logger.setLevel(level)
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(self._handler)
        sys.stderr = self._stderr

    def _about_the_run(self) -> dict[str, object]:
        """Return what the last lines are about: a run that is over, if this command had one run only."""
        runs = self.narrator.runs
        return dict(next(iter(runs.values()))) if len(runs) == 1 else {}


class _Narrator(LogNarrator):
    """Remembers which runs there were, but for those of others that were recovered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.runs: dict[object, Mapping[str, object]] = {}

    def line(self, level: int, event: str, **facts: object) -> None:
        known = about()
        if known.get("run_id") and known.get("step") != "recover":
            self.runs[known["run_id"]] = {key: known.get(key) for key in ("run_id", "table", "branch")}
        super().line(level, event, **facts)


class _Lines(io.TextIOBase):
    """A text stream whose lines become lines of the log."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, narrator: LogNarrator) -> None:
        self._narrator = narrator
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._narrator.line(logging.INFO, line.rstrip())
        return len(text)

    def finish(self) -> None:
        """Write the last line, which nothing has ended."""
        self.write("\n")
