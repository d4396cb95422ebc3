"""The holder of a lease: a name for this process that no other process has.

A pid isn't enough, because pids are reused. A pid with the process's start time is, if the start time is counted from
the machine's boot (on Linux, field 22 of ``/proc/PID/stat``, see proc(5)), which setting the clock doesn't change.
"""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from functools import cache
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")
_DEAD_STATES = {"Z", "X", "x"}


class Holder(Protocol):
    """Names processes in leases, and knows which are alive."""

    def identity(self) -> str:
        """Return the text that names this process in a lease."""

    def is_alive(self, identity: str) -> bool | None:
        """Return whether the process of that name is alive; ``None`` if we can't know."""


class ProcessHolder:
    """The current process; after a fork, the forked one.

    Example:
        >>> holder = ProcessHolder()
        >>> holder.is_alive(holder.identity()), holder.is_alive("another-host:1:1")
        (True, None)
    """

    def identity(self) -> str:
        """Return ``host:pid:start``."""
        pid = os.getpid()
        return f"{_host()}:{pid}:{process_start(pid)}"

    def is_alive(self, identity: str) -> bool | None:
        """Return whether the process is alive.

        ``None`` if it's on another host, was on this host before its last boot, or is hidden from this user.
        """
        host, _, rest = identity.partition(":")
        pid, _, started = rest.partition(":")
        if host != _host() or not pid.isdigit():
            return None
        found = process_start(int(pid))
        if found is None and _is_hidden(int(pid)):
            return None
        return found == started


@cache
def _host() -> str:
    """Return an id that differs between machines, boots, and containers that don't see each other's processes."""
    facts = (_read("/etc/machine-id"), platform.node(), _read("/proc/sys/kernel/random/boot_id"), _pid_namespace())
    known = facts if any(facts[2:]) else (*facts, str(uuid.getnode()))
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:16]


def _pid_namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _is_hidden(pid: int) -> bool:
    """Return whether the process is another user's, with a ``/proc/PID`` that ``hidepid`` hides from us (proc(5))."""
    if os.access(_PROC / str(pid) / "stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def process_start(pid: int) -> str | None:
    """Return when the process was started, as text; ``None`` if it has ended, or we can't read that."""
    if not (_PROC / "self/stat").exists():
        return _started_without_proc(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field, the program's name in parentheses, may itself contain spaces and parentheses.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in _DEAD_STATES else fields[18]


def _started_without_proc(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None
