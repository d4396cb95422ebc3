"""Files and folders below ``.lakegate`` that only their owner may read, whatever the umask.

The journal names source files, tables and columns, and holds examples of rows that failed a check.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lakegate.config import HOME_NAME

_OTHERS = 0o077
_COPIES_KEPT_S = 7 * 24 * 3600.0
"""How long copies of sources outlive the process that made them: a suspended run may still need them."""


def private_folder(folder: Path) -> Path:
    """Create a folder and its missing parents for their owner only, and return it.

    Existing folders from ``.lakegate`` on are closed to others; any other is left as it is.
    """
    for made in (*reversed(folder.parents), folder):
        if not made.exists():
            made.mkdir(mode=0o700, exist_ok=True)
    for own in _own(folder):
        _close(own)
    return folder


def copies_of(home: Path, run_id: str) -> Path:
    """Return the folder for what a run makes of its sources, so that the engine can read them; it may not exist."""
    return home / HOME_NAME / "sources" / run_id


def drop_copies(home: Path, run_id: str) -> None:
    """Delete what a run that has ended made of its sources, and what was left long ago by processes that died."""
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
    """Create a file for its owner only, or close an existing one to others. Errors are left to whoever uses the file.

    An existing file is never opened: if it's SQLite's, closing it again would drop the locks of all connections that
    this process has to it (fcntl(2); "How To Corrupt An SQLite Database File", 2.2).
    """
    with suppress(OSError):
        if not path.exists():
            made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                os.link(made, path)
            finally:
                made.unlink()
    _close(path)


def _own(folder: Path) -> Iterator[Path]:
    if folder.name == HOME_NAME:
        yield folder
    for above in folder.parents:
        if above.name == HOME_NAME:
            yield from (above, folder)


def _close(path: Path) -> None:
    # Another user's files aren't ours to change.
    with suppress(OSError):
        mode = path.stat().st_mode
        if mode & _OTHERS:
            path.chmod(mode & 0o7700)
