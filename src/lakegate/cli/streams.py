"""Standard input, output and error of the process, whose writes never fail.

A command that stopped because its reader went away, or because the disk of its log is full, would leave its work half
done. So output that is lost is only remembered, and it decides the exit code only of a command that otherwise succeeded
(decision 0033).
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from lakegate.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # Python 3.12's

CLOSED_PIPE = 141
"""128 + SIGPIPE, as a shell reports a program that died of a closed pipe."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
SPELLED_OUT = "lakegate-spelled-out"
"""Name of the codec error handler below."""
_IN_ASCII = dict(zip("●◆○✗✓┊│├─╮╯█–→·", "o*oxv:||-\\/#->.", strict=True)) | {"…": "...", "≤": "<="}
"""The characters that our own output is drawn with."""


class _Descriptor(io.RawIOBase):
    """A file descriptor that takes every write. After the first one that fails, it drops them."""

    def __init__(self, descriptor: int, trouble: OSError | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._trouble = trouble
        self.lost: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Buffer, /) -> int:
        if self._trouble is None:
            try:
                return self._write(data)
            except OSError as error:
                self._trouble = error
        self.lost = self._trouble
        return memoryview(data).nbytes

    def _write(self, data: Buffer) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # another program made the terminal, which they share, non-blocking
                ready = select.poll()
                ready.register(self._descriptor, select.POLLOUT)
                ready.poll()


def _spelled_out(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace a character that the encoding lacks: by ASCII if it is one of ours, otherwise by an escape."""
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in _IN_ASCII:
        return _IN_ASCII[error.object[error.start]], error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error(SPELLED_OUT, _spelled_out)


class Stream(io.TextIOWrapper):
    """A standard stream to write to. Characters that its encoding lacks become ASCII or escapes."""

    def __init__(self, descriptor: int, like: TextIO | None) -> None:
        self._raw = _Descriptor(descriptor, OSError(errno.EBADF, "it is closed") if like is None else None)
        direct = bool(getattr(like, "line_buffering", True) or getattr(like, "write_through", True))
        encoding = getattr(like, "encoding", None) or "utf-8"
        super().__init__(io.BufferedWriter(self._raw), encoding=encoding, errors=SPELLED_OUT, line_buffering=direct)

    @property
    def lost(self) -> OSError | None:
        """Why output was lost; ``None`` if none was."""
        return self._raw.lost


def guard() -> None:
    """Replace the standard streams by ones whose writes never fail, even if the process was started without them."""
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        _occupy(descriptor)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    sys.stdout = Stream(_STDOUT, cast("TextIO | None", sys.stdout))
    sys.stderr = Stream(_STDERR, cast("TextIO | None", sys.stderr))


def lost_output() -> OSError | None:
    """Return why part of standard output was lost, as far as is known yet; ``None`` if none was."""
    return sys.stdout.lost if isinstance(sys.stdout, Stream) else None


def ending(code: int) -> tuple[int, str | None]:
    """Return the final exit code of a command that would exit with ``code``, and why output was lost.

    Lost output changes only the exit code 0. A reader that went away (``lakegate log | head``) isn't worth a message.
    """
    if isinstance(sys.stdout, Stream):
        sys.stdout.flush()
    lost = lost_output()
    if lost is None:
        return code, None
    if isinstance(lost, BrokenPipeError):
        return code or CLOSED_PIPE, None
    return code or ExitCode.OUTPUT_LOST, lost.strerror


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON text, with escapes only for what standard output's encoding lacks."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return json.dumps(value, ensure_ascii=not encoding.startswith("utf"), indent=indent, allow_nan=False)


def _occupy(descriptor: int) -> None:
    """Keep files that are opened later from getting the number of a closed standard stream."""
    try:
        os.fstat(descriptor)
    except OSError:
        sink = os.open(os.devnull, os.O_RDWR)
        if sink != descriptor:
            os.dup2(sink, descriptor)
            os.close(sink)
