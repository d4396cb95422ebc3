"""Create files and folders below ``.lakegate`` that only their owner may read, whatever the umask.

The journal names source files, tables and columns, and contains example rows that failed a check.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from lakegate.config import HOME_NAME

_GROUP_AND_OTHERS = 0o077
_COPIES_KEPT_S = 7 * 24 * 3600.0
"""How long to keep copies of sources whose process died: a suspended run may still need them."""


def private_folder(folder: Path) -> Path:
    """Create a folder and its missing parents for their owner only, and return it.

    Existing folders at and below ``.lakegate`` are closed to others. Those above it stay as they are.
    """
    for missing in (*reversed(folder.parents), folder):
        if not missing.exists():
            missing.mkdir(mode=0o700, exist_ok=True)
    for own in _below_lakegate(folder):
        _close_to_others(own)
    return folder


def copies_of(home: Path, run_id: str) -> Path:
    """Return the folder for copies of a run's sources that the engine can read. It may not exist.

    If the project is read-only, as on AWS Lambda, it's below a temporary folder, if one can be created.
    """
    own = home / HOME_NAME
    is_writable = os.access(own if own.is_dir() else home, os.W_OK)
    return (own if is_writable else (_temporary_folder() or home) / HOME_NAME) / "sources" / run_id


@cache
def _temporary_folder() -> Path | None:
    try:
        folder = Path(tempfile.mkdtemp(prefix="lakegate-"))
    except OSError:  # nothing can be written anywhere, which matters only to files that are copied
        return None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def drop_copies(home: Path, run_id: str) -> None:
    """Delete the copies of a run that has ended, and old ones of processes that died."""
    folder = copies_of(home, run_id)
    if not folder.parent.is_dir():
        return
    shutil.rmtree(folder, ignore_errors=True)
    before = time.time() - _COPIES_KEPT_S
    for other in folder.parent.iterdir():
        with suppress(OSError):
            if other.stat().st_mtime < before:
                shutil.rmtree(other, ignore_errors=True)


def private_file(path: Path) -> None:
    """Create a file for its owner only, or close an existing one to others. Errors are left to the code that opens it.

    An existing file is never opened. If it's an SQLite database, closing it would drop the locks of all connections of
    this process (fcntl(2); "How To Corrupt An SQLite Database File", 2.2).
    """
    with suppress(OSError):
        if not path.exists():
            draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                os.link(draft, path)
            finally:
                draft.unlink()
    _close_to_others(path)


def _below_lakegate(folder: Path) -> Iterator[Path]:
    if folder.name == HOME_NAME:
        yield folder
    for above in folder.parents:
        if above.name == HOME_NAME:
            yield from (above, folder)


def _close_to_others(path: Path) -> None:
    # Changing another user's file fails, and should.
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & _GROUP_AND_OTHERS:
            path.chmod(mode & 0o7700)
