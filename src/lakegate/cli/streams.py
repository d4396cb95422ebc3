"""Standard streams whose writes never fail.

A command that stopped because its reader went away, or because the disk with its log is full, would leave its work half
done. So lost output is only remembered, and changes the exit code only of a command that otherwise succeeded (decision
0033).
"""

from __future__ import annotations

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
    from _typeshed import ReadableBuffer

CLOSED_PIPE = 141
"""128 + SIGPIPE, as a shell reports a program that died of a closed pipe."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class _Descriptor(io.RawIOBase):
    """A file descriptor on which no write fails: after the first error, it drops what is written."""

    def __init__(self, descriptor: int, error: OSError | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._error = error
        self.lost: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer, /) -> int:
        if self._error is None:
            try:
                return self._write(data)
            except OSError as error:
                self._error = error
        self.lost = self._error
        return memoryview(data).nbytes

    def _write(self, data: ReadableBuffer) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # another program made the shared terminal non-blocking
                ready = select.poll()
                ready.register(self._descriptor, select.POLLOUT)
                ready.poll()


class Stream(io.TextIOWrapper):
    """A standard output stream. Characters that its encoding lacks become escapes."""

    def __init__(self, descriptor: int, like: TextIO | None) -> None:
        self._raw = _Descriptor(descriptor, OSError(errno.EBADF, "it is closed") if like is None else None)
        direct = bool(getattr(like, "line_buffering", True) or getattr(like, "write_through", True))
        encoding = getattr(like, "encoding", None) or "utf-8"
        super().__init__(
            io.BufferedWriter(self._raw), encoding=encoding, errors="backslashreplace", line_buffering=direct
        )

    @property
    def lost(self) -> OSError | None:
        """Why output was lost; ``None`` if none was."""
        return self._raw.lost


def guard() -> None:
    """Replace the standard streams by ones whose writes never fail, even if the process started without them."""
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        _occupy(descriptor)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    sys.stdout = Stream(_STDOUT, cast("TextIO | None", sys.stdout))
    sys.stderr = Stream(_STDERR, cast("TextIO | None", sys.stderr))


def lost_output() -> OSError | None:
    """Return why some of standard output was lost, as far as is known yet; ``None`` if none was."""
    return sys.stdout.lost if isinstance(sys.stdout, Stream) else None


def final_exit_code(code: int) -> tuple[int, str | None]:
    """Return the exit code of a command that would exit with ``code``, and why output was lost, if that's worth saying.

    Lost output changes only exit code 0. A reader that went away (``lakegate log | head``) isn't worth a message.
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
    """Return JSON text, with escapes only for characters that standard output's encoding lacks."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return json.dumps(value, ensure_ascii=not encoding.startswith("utf"), indent=indent, allow_nan=False)


def _occupy(descriptor: int) -> None:
    """Open a closed standard stream on ``/dev/null``, so that no other file gets its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        sink = os.open(os.devnull, os.O_RDWR)
        if sink != descriptor:
            os.dup2(sink, descriptor)
            os.close(sink)
