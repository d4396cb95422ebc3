"""Processes that outlive the one that started them: spawn, recognise and stop them.

A process is recognised by a random text on its command line. A pid alone isn't enough, since pids are reused, and a
start time changes when the clock is set.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakegate.errors import LocalStackError

if TYPE_CHECKING:
    import psutil

    from lakegate.ports import Narrator

_PROC = Path("/proc")
_POLL_S = 0.02
_COMMAND_LINE_S = 2.0
_HOME_OPTION = "-Dlakegate.home="
_SERVICE_OPTION = "-Dlakegate.service="
_INSTANCE_OPTION = "-Dlakegate.instance="
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Variables from which every Java takes options."""
_KEPT_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *(*JAVA_VARIABLES, "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    }
)

# Polled at each start of another one, so that a long-lived program reaps the dead ones.
_children: list[subprocess.Popen[bytes]] = []


class _SurvivingProcess(subprocess.Popen[bytes]):
    """A process that may outlive this program, without the warning that Popen gives about that."""

    def __del__(self) -> None:
        pass


def marker_options(home: Path, name: str, instance: str) -> tuple[str, str, str]:
    """Return the Java options that identify our servers."""
    return f"{_HOME_OPTION}{home}", f"{_SERVICE_OPTION}{name}", f"{_INSTANCE_OPTION}{instance}"


def environment(extra: Mapping[str, str], source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a server: the variables it needs, without any secrets.

    Args:
        extra: Variables to add or replace.
        source: The variables to select from; by default this process's.

    Example:
        >>> environment({"A": "1"}, {"PATH": "/bin", "DATABASE_PASSWORD": "x", "LC_ALL": "C.UTF-8"})
        {'PATH': '/bin', 'LC_ALL': 'C.UTF-8', 'A': '1'}
    """
    values = os.environ if source is None else source
    kept = {key: value for key, value in values.items() if key in _KEPT_VARIABLES or key.startswith("LC_")}
    return {**kept, **extra}


def spawn(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that survives the end of this one, and Ctrl-C in its terminal.

    Args:
        env: The process's whole environment.
        log: The file for its output. The log of the previous start is kept as ``….1``.
    """
    _children[:] = [child for child in _children if child.poll() is None]
    try:
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
            child = _SurvivingProcess(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise LocalStackError(
            f"Can't start {Path(command[0]).name}: {error.filename or command[0]}: {error.strerror or error}.",
            hint=f"Check that {command[0]} is executable and {log.parent} is writable.",
            program=command[0],
        ) from error
    _children.append(child)
    # A new process has no arguments for a few milliseconds, and wouldn't be recognised as ours.
    deadline = time.monotonic() + _COMMAND_LINE_S
    while not command_line(child.pid) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return child


def command_line(pid: int) -> tuple[str, ...]:
    """Return a process's arguments; empty if it's gone, a zombie, or inaccessible."""
    if _PROC.joinpath("self").exists():
        try:
            raw = _PROC.joinpath(str(pid), "cmdline").read_bytes()
        except OSError:
            return ()
        return tuple(part.decode(errors="surrogateescape") for part in raw.split(b"\0") if part)
    import psutil

    try:
        return tuple(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ()


def is_instance(pid: int, instance: str) -> bool:
    """Return whether the process is alive and was started as ``instance``."""
    return f"{_INSTANCE_OPTION}{instance}" in command_line(pid)


@dataclass(frozen=True, slots=True)
class MarkedServer:
    """A running server of any project."""

    home: str
    name: str
    pid: int


def find_servers() -> list[MarkedServer]:
    """Return this user's servers of all projects on this machine, in any state file or none."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            home = next((part.removeprefix(_HOME_OPTION) for part in line if part.startswith(_HOME_OPTION)), None)
            if home is not None and process.uids().real == os.getuid():
                names = (part.removeprefix(_SERVICE_OPTION) for part in line if part.startswith(_SERVICE_OPTION))
                found.append(MarkedServer(home, next(names, "server"), process.pid))
    return found


def find_marked(home: Path) -> dict[int, str]:
    """Return this user's servers that were started for ``home``: server names by pid."""
    return {server.pid: server.name for server in find_servers() if server.home == str(home)}


def listens(pid: int, port: int) -> bool:
    """Return whether this process listens on ``port``, and not another one that took the port first.

    True if the operating system doesn't let us check.
    """
    import psutil

    try:
        sockets = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)


def create_time(pid: int) -> float:
    """Return when a process started, in seconds since the epoch; 0 if it's gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def memory_bytes(pid: int) -> int | None:
    """Return a process's resident memory in bytes; ``None`` if it's gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


@dataclass(frozen=True, slots=True)
class StopTarget:
    """A process to stop, and the text on its command line that proves it's the right one."""

    pid: int
    mark: str

    @classmethod
    def instance(cls, pid: int, instance: str) -> StopTarget:
        """Return the target for the server that was started with this random text; see ``state.ServiceState``."""
        return cls(pid, f"{_INSTANCE_OPTION}{instance}")

    @classmethod
    def marked(cls, pid: int, home: Path) -> StopTarget:
        """Return the target for a server started for ``home``."""
        return cls(pid, f"{_HOME_OPTION}{home}")


def stop(targets: Sequence[StopTarget], *, grace_s: float) -> None:
    """Stop processes: send TERM, wait up to ``grace_s`` seconds, then send KILL. Returns when all are gone.

    Processes without their mark are left alone.
    """
    import psutil

    alive: list[psutil.Process] = []
    for target in targets:
        with contextlib.suppress(psutil.NoSuchProcess):
            # psutil compares start times, so a reused pid can't get the signal.
            process = psutil.Process(target.pid)
            if target.mark in command_line(target.pid):
                process.terminate()
                alive.append(process)
    alive = _wait_gone(alive, grace_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    stubborn = [process.pid for process in _wait_gone(alive, grace_s)]
    if stubborn:
        raise LocalStackError(
            f"Can't stop process {', '.join(map(str, stubborn))} of the local stack.",
            hint=f"It's stuck in the operating system ({sys.platform}), usually in disk I/O. Check the disk.",
            pids=stubborn,
        )


def stop_marked(home: Path, *, spared: Collection[int] = (), grace_s: float) -> set[str]:
    """Stop this user's servers that were started for ``home``, except the pids ``spared``; return their names."""
    found = {pid: name for pid, name in find_marked(home).items() if pid not in spared}
    stop([StopTarget.marked(pid, home) for pid in found], grace_s=grace_s)
    return set(found.values())


def run_logged(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    wait: Callable[[subprocess.Popen[bytes]], None],
) -> int:
    """Run a program with its output in ``log``, kill it once ``wait`` returns or raises, and return its exit code."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait(child)
        finally:
            child.kill()
            code = child.wait()
    return code


def first_match(log: Path, patterns: Iterable[re.Pattern[str]]) -> str | None:
    """Return the text in a log that matches the first of ``patterns`` that any text matches."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
    return found.group().strip() if found else None


def _wait_gone(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_s
    alive = [process for process in processes if not _is_gone(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        alive = [process for process in alive if not _is_gone(process)]
    return alive


def _is_gone(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent hasn't reaped it.

    In many containers process 1 never reaps, so zombies stay. A zombie that still has threads may hold files and ports.
    """
    import psutil

    try:
        if not process.is_running():
            return True
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.Error as error:
        return isinstance(error, psutil.NoSuchProcess)


def is_free(port: int) -> bool:
    """Return whether ``port`` is free on the loopback interface."""
    try:
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            candidate.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def free_port(avoid: Collection[int] = ()) -> int:
    """Return a free port that isn't in ``avoid``."""
    with contextlib.ExitStack() as held:
        while True:
            candidate = held.enter_context(socket.socket())  # held, so that the next try gets another port
            candidate.bind(("127.0.0.1", 0))
            port = int(candidate.getsockname()[1])
            if port not in avoid:
                return port


def choose_port(
    remembered: int | None, title: str, narrator: Narrator, avoid: Collection[int] = (), *, grace_s: float = 1.0
) -> int:
    """Return the port that a server had before; a free one if that's still taken after ``grace_s`` seconds.

    A server that was just killed may need a moment to release its port.
    """
    if remembered is None:
        return free_port(avoid)
    deadline = time.monotonic() + grace_s
    while not (free := is_free(remembered)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if free:
        return remembered
    narrator.note(f"Port {remembered} of {title} is taken by another process; choosing another one.")
    return free_port(avoid)
