"""Processes that outlive the one that started them: spawn, recognise, stop.

A process is recognised by a random text on its own command line. That holds where a pid alone doesn't (pids are
reused) and where a start time doesn't either (it moves when the clock is set).
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
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
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("JAVA_TOOL_OPTIONS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    }
)

# Asked now and then, so that the dead ones are reaped in a program that lives long.
_children: list[subprocess.Popen[bytes]] = []


class _Outliving(subprocess.Popen[bytes]):
    """A process that is meant to run on when this program ends, of which Popen would warn then."""

    def __del__(self) -> None:
        pass


def marks(home: Path, name: str, instance: str) -> tuple[str, str, str]:
    """Return the Java options that identify our servers."""
    return f"{_HOME_OPTION}{home}", f"{_SERVICE_OPTION}{name}", f"{_INSTANCE_OPTION}{instance}"


def environment(extra: Mapping[str, str], source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a server: what it needs to run, and none of the secrets around.

    Args:
        extra: Variables to add or replace.
        source: Where to take the others from; default the process's own.

    Example:
        >>> environment({"A": "1"}, {"PATH": "/bin", "DATABASE_PASSWORD": "x", "LC_ALL": "C.UTF-8"})
        {'PATH': '/bin', 'LC_ALL': 'C.UTF-8', 'A': '1'}
    """
    values = os.environ if source is None else source
    kept = {key: value for key, value in values.items() if key in _PASSED_ON or key.startswith("LC_")}
    return {**kept, **extra}


def spawn(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that this one's end, or its terminal's Ctrl-C, leaves alone.

    Args:
        env: Its whole environment.
        log: Where its output goes. A log of an earlier start is kept once, as ``….1``.
    """
    _children[:] = [child for child in _children if child.poll() is None]
    try:
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:  # noqa: PTH123 - Path.open takes no mode bits
            child = _Outliving(
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
            f"{Path(command[0]).name} can't be started: {error.filename or command[0]}: {error.strerror or error}.",
            hint=f"Check that {command[0]} can be executed and {log.parent} can be written.",
            program=command[0],
        ) from error
    _children.append(child)
    _await_command_line(child)
    return child


def _await_command_line(child: subprocess.Popen[bytes]) -> None:
    # For some milliseconds after it was started a process has no arguments yet, and would be taken for a stranger.
    deadline = time.monotonic() + _COMMAND_LINE_S
    while not command_line(child.pid) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def command_line(pid: int) -> tuple[str, ...]:
    """Return a process's arguments; empty when it is gone, a zombie, or not ours to look at."""
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
    """Return whether the process lives and is the one that was started as ``instance``."""
    return f"{_INSTANCE_OPTION}{instance}" in command_line(pid)


@dataclass(frozen=True, slots=True)
class MarkedServer:
    """A running server of some project."""

    home: str
    name: str
    pid: int


def find_servers() -> list[MarkedServer]:
    """Return this user's servers of all projects on this machine, whoever remembers them."""
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
    """Return this user's servers that were started for ``home``: pid to server name."""
    return {server.pid: server.name for server in find_servers() if server.home == str(home)}


def find_below(folder: Path) -> tuple[Target, ...]:
    """Return this user's processes that run a file below ``folder``, by the name of that file."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            files = [part for part in process.cmdline() if part.startswith(f"{folder}{os.sep}")]
            if files and process.uids().real == os.getuid():
                found.append(Target(process.pid, files[0]))
    return tuple(found)


def listens(pid: int, port: int) -> bool:
    """Return whether it is this process that listens on ``port``, and not another one that was quicker.

    True where the operating system doesn't let us look.
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
    """Return when a process began, seconds since the epoch; 0 when it is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def memory_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or ``None`` when it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """A process to stop, and the text that must be on its command line for it to be the one meant."""

    pid: int
    mark: str

    @classmethod
    def instance(cls, pid: int, instance: str) -> Target:
        """Return the target for a server started as ``instance``."""
        return cls(pid, f"{_INSTANCE_OPTION}{instance}")

    @classmethod
    def marked(cls, pid: int, home: Path) -> Target:
        """Return the target for a server started for ``home``."""
        return cls(pid, f"{_HOME_OPTION}{home}")


def stop(targets: Sequence[Target], *, grace_s: float) -> None:
    """End processes: ask (TERM), wait up to ``grace_s`` seconds, then force (KILL). Returns when all are gone.

    Processes that no longer carry their mark are left alone.
    """
    import psutil

    alive: list[psutil.Process] = []
    for target in targets:
        with contextlib.suppress(psutil.NoSuchProcess):
            # psutil holds on to the start time, so the pid can't change hands between this look and the signal.
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
            f"Process {', '.join(map(str, stubborn))} of the local stack doesn't end.",
            hint=f"It hangs in the operating system, often in input or output on {sys.platform}; look at the disk.",
            pids=stubborn,
        )


def _wait_gone(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_s
    alive = [process for process in processes if not _is_gone(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        alive = [process for process in alive if not _is_gone(process)]
    return alive


def _is_gone(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent hasn't looked.

    In many containers process 1 never does, and zombies stay. One that still has threads may hold files and ports.
    """
    import psutil

    try:
        if not process.is_running():
            return True
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.Error as error:
        return isinstance(error, psutil.NoSuchProcess)


def is_free(port: int) -> bool:
    """Return whether nobody listens on ``port`` of the loopback interface, IPv4 or IPv6.

    IPv6 matters although we don't listen there: clients that look up ``localhost`` may try it first.
    """
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as candidate:
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                candidate.bind((host, port))
        except OSError:
            if family == socket.AF_INET or _has_ipv6():
                return False
    return True


def free_port(avoid: Collection[int] = ()) -> int:
    """Return a port nobody listens on, and none of those to avoid."""
    with contextlib.ExitStack() as held:
        while True:
            candidate = held.enter_context(socket.socket())  # held, so that the next try gets another one
            candidate.bind(("127.0.0.1", 0))
            port = int(candidate.getsockname()[1])
            if port not in avoid:
                return port


def choose_port(
    remembered: int | None, title: str, narrator: Narrator, avoid: Collection[int] = (), *, grace_s: float = 1.0
) -> int:
    """Return the port that a server had before, unless another process still has it after ``grace_s``; else a free one.

    A server that was killed a moment ago may still be letting go of it.
    """
    if remembered is None:
        return free_port(avoid)
    deadline = time.monotonic() + grace_s
    while not (free := is_free(remembered)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if free:
        return remembered
    narrator.note(f"Port {remembered} of {title} is taken by another process; choosing another.")
    return free_port(avoid)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as candidate:
            candidate.bind(("::1", 0))
    except OSError:
        return False
    return True
