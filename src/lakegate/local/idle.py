"""Stops idle servers, in a small process of its own.

It's run as a file: importing the package would take far more memory than it ever needs itself. A user of the servers
holds ``.lakegate/stack.use`` (:class:`~lakegate.local.state.Usage`), or a connection to one of their ports.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_LONGEST_PAUSE_S = 20.0
_PAUSES = 4
_POLL_S = 0.5
_TIME_WAIT = "06"


def watch(home: Path) -> bool:
    """Wait until a project's servers have been idle for the time in its ``idle.lock``, then stop them.

    Returns:
        Whether it stopped them. It doesn't if someone else did, another process is watching them, or there's no limit.
    """
    folder = home / ".lakegate"
    own = _locked(folder / "idle.lock")
    if own is None:
        return False
    used_at, idle_s = time.time(), 0.0
    while services := _services(folder, home):
        with contextlib.suppress(OSError, ValueError):  # it may be half written
            # Read each time, since later starts may have changed the limit.
            idle_s = float((folder / "idle.lock").read_text())
        if idle_s <= 0:
            return False
        handle = _locked(folder / "stack.use")
        if handle is None or _is_connected(services):
            used_at = time.time()
        else:
            with contextlib.suppress(OSError):  # the time of the last release
                used_at = max(used_at, (folder / "stack.use").stat().st_mtime)
            if time.time() - used_at >= idle_s:
                _stop(home)  # new users wait for the lock meanwhile
                return True
        if handle is not None:
            os.close(handle)
        pause(min(_LONGEST_PAUSE_S, idle_s / _PAUSES), folder / "stack.json")
    return False


def pause(seconds: float, state: Path) -> None:
    """Sleep until the time is over or the state file changes, so that this process ends soon after its servers."""
    before, until = _changed_at(state), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and _changed_at(state) == before:
        time.sleep(min(_POLL_S, left))


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _services(folder: Path, home: Path) -> list[dict[str, Any]]:
    """Return the state file's entries of servers that are running."""
    import psutil

    try:
        state = json.loads((folder / "stack.json").read_bytes())
    except (OSError, ValueError):
        return []
    found = []
    for service in state.get("services", {}).values() if state.get("home") == str(home) else ():
        with contextlib.suppress(psutil.Error):
            if any(service["instance"] in part for part in psutil.Process(service["pid"]).cmdline()):
                found.append(service)
    return found


def _is_connected(services: list[dict[str, Any]]) -> bool:
    """Return whether a process other than the servers is connected to one of them, or was a moment ago."""
    import psutil

    theirs: set[int] = set()
    clients: set[int] = set()
    for service in services:
        try:
            sockets = psutil.Process(service["pid"]).net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            return True  # can't tell
        for one in sockets:
            if one.status == psutil.CONN_ESTABLISHED and one.raddr:
                theirs.add(one.laddr.port)
                if one.laddr.port == service["port"]:
                    clients.add(one.raddr.port)
    return bool(clients - theirs) or was_connected({service["port"] for service in services})


def was_connected(ports: set[int]) -> bool:
    """Return whether a connection to one of the ports was closed in the last minute, as Linux remembers it."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(path).read_text(encoding="ascii").splitlines()[1:]:
                local, remote, state = line.split()[1:4]
                if state == _TIME_WAIT and not ports.isdisjoint(
                    int(end.rpartition(":")[2], 16) for end in (local, remote)
                ):
                    return True
    return False


def _locked(path: Path) -> int | None:
    """Return a handle that holds the lock exclusively; ``None`` if others hold it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _stop(home: Path) -> None:
    from lakegate.config import LocalSettings
    from lakegate.local.stack import LocalStack
    from lakegate.progress import SilentNarrator

    LocalStack(home, LocalSettings(), SilentNarrator()).down()


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
