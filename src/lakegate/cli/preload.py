"""Commands that load nothing: a process beside the local servers has imported everything, and forks for each.

Importing takes longer than what most commands do: half a second, and one more with PySpark. So the first command that
finds a project's servers running leaves such a process behind (:func:`begin`, :func:`serve`). From then on, what users
start is a small client (:func:`main`): it hands over its arguments, environment, working folder and standard streams,
passes signals on, and ends as the fork did. Where a fork would differ from a process of its own
(:func:`surroundings`), or the program on disk has changed since, the command runs as if there were none.

This module imports next to nothing, as every command begins with it. See docs/decisions/0085.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import socket
    from pathlib import Path
    from types import FrameType

COMMANDS = frozenset(
    {
        *("audit", "branch", "check", "checks", "completion", "diff", "discard", "downstream", "gc", "generate"),
        *("ingest", "inspect", "journal", "log", "metrics", "notify", "publish", "quarantine", "query", "recover"),
        *("report", "revert", "runs", "status", "table", "tag", "verify"),
    }
)
"""Commands that are worth it. The others run for long, or start and stop servers."""
_WITH_VALUE = ("--home", "--engine", "--catalog", "--log-format")
_READ_AT_START = (
    *("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "MIMALLOC_", "OPENSSL_"),
    *("ARROW_", "GRPC_", "OMP_", "OPENBLAS_", "PROTOCOL_BUFFERS", "PYICEBERG_"),
)
"""How variables begin that the interpreter and libraries read when they are loaded, and not again."""
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SOCKET = "preload.sock"
"""Where the process listens, in ``.lakegate``."""
_LONGEST_ADDRESS = 107
"""Bytes: ``sun_path`` of unix(7)."""
_COLD = 0
"""In place of a process's id: run the command without us."""
_INTERNAL = 70
_NUMBER = 4
_GLANCE_S = 1.0


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit, in a fork of the process that has it loaded, if there is one."""
    words = sys.argv[1:]
    command = "completion" if "_LAKEGATE_COMPLETE" in os.environ else command_of(words)
    is_linux = sys.platform == "linux"
    home = served_home(words) if is_linux and command in COMMANDS else None
    status = None if home is None else _hand_over(home, words)
    if status is not None:
        _end_like(status)
    from lakegate.cli import main as program

    program.main(leave_behind=partial(begin, words) if is_linux and command in {*COMMANDS, "demo", "up"} else None)


def begin(words: list[str]) -> None:
    """Leave a process behind that runs the next commands in a project whose servers run.

    There's none if one is there already, or the settings refuse it.

    Args:
        words: The command line that has just been run.
    """
    import fcntl
    from pathlib import Path

    from lakegate.config import load_settings
    from lakegate.local import process

    home = served_home(words)
    if home is None or not _has_servers(folder := Path(home, ".lakegate")):
        return
    is_fit = len(os.fsencode(folder / SOCKET)) <= _LONGEST_ADDRESS and folder.stat().st_uid == os.geteuid()
    if not is_fit or not load_settings(Path(home)).local.preload:
        return
    handle = _lock(folder)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    command = (sys.executable, "-P", "-m", __name__, home)
    variables = process.environment(_read_at_start(os.environ))
    process.spawn(command, env=variables, cwd=folder, log=folder / "logs" / "preload.log")


def surroundings() -> dict[str, Any]:
    """Return what a fork can't take over from its client, so that it must have the same."""
    import resource

    import lakegate

    limits = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
    return {
        "program": [lakegate.__file__, sys.version, sys.prefix, sys.path[0 if sys.flags.safe_path else 1 :]],
        "options": [sys.warnoptions, sys._xoptions, sys.flags.optimize, sys.flags.dev_mode, sys.gettrace() is not None],  # noqa: SLF001 - no other name
        "variables": _read_at_start(os.environ),
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups()), os.nice(0)],
        "limits": [resource.getrlimit(limit) for limit in dict.fromkeys(limits)],
        "machine": [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES],  # noqa: PTH115
    }


def command_of(words: list[str]) -> str | None:
    """Return the command of a command line, which global options may precede."""
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            return word
        if word in _WITH_VALUE:
            next(left, None)
    return None


def served_home(words: list[str]) -> str | None:
    """Return the project's folder if it has had servers, as :func:`lakegate.config.find_home` finds it."""
    if any(word.startswith(("/dev/fd/", "/proc/")) for word in words):  # a shell's <(…), of this process only
        return None
    try:
        folder = os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    except OSError:
        return None
    for at, word in enumerate(words):
        if word == "--home" and at + 1 < len(words):
            folder = os.path.join(folder, words[at + 1])  # noqa: PTH118
        elif word.startswith("--home="):
            folder = os.path.join(folder, word.removeprefix("--home="))  # noqa: PTH118
    while not _exists(folder, ".lakegate") and not _exists(folder, "lakegate.toml") and folder != "/":
        folder = os.path.dirname(folder)  # noqa: PTH120
    return folder if _exists(folder, ".lakegate", "stack.json") else None


def _exists(*parts: str) -> bool:
    return os.path.exists(os.path.join(*parts))  # noqa: PTH110, PTH118


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_READ_AT_START)}


# The client


def _hand_over(home: str, words: list[str]) -> int | None:
    """Have a command run, and return how it ended, as :func:`os.waitpid` does; ``None`` if nobody runs it."""
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.path.join(home, ".lakegate", SOCKET))  # noqa: PTH118
        except OSError:
            return None
        if not _is_ours(connection):
            return None
        signals = _Signals()
        try:
            pid = _order(connection, words)
        except OSError:  # it ended just now
            pid = _COLD
        signals.pass_to(pid)
        if pid == _COLD:
            return None
        status = _receive(connection)
        return signal.SIGKILL if status is None else status


def _order(connection: socket.socket, words: list[str]) -> int:
    """Hand over what a command needs, and return the id of the process that runs it."""
    import json
    import socket

    umask = os.umask(0o077)
    os.umask(umask)
    opened = [number for number in (0, 1, 2) if _is_open(number)]
    order = {
        "words": words,
        "surroundings": surroundings(),
        "variables": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "path": sys.path,
        "umask": umask,
        "opened": opened,
    }
    data = json.dumps(order).encode()
    socket.send_fds(connection, [_to_bytes(len(data))], opened)
    connection.sendall(data)
    return _receive(connection) or _COLD


class _Signals:
    """Passes signals on to the process that runs a command. Those that come before there is one wait for it."""

    def __init__(self) -> None:
        self._pid = _COLD
        self._early: list[int] = []
        known = {number: signal.getsignal(number) for number in (*_PASSED_ON, signal.SIGTSTP)}
        self._before: dict[int, Any] = {
            number: handler for number, handler in known.items() if handler is not signal.SIG_IGN
        }
        for number in self._before:
            signal.signal(number, self._pause if number == signal.SIGTSTP else self._pass_on)

    def pass_to(self, pid: int) -> None:
        self._pid = pid
        if pid == _COLD:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        for number in self._early:
            os.kill(os.getpid(), number)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._pid == _COLD:
            self._early.append(number)
        else:
            _send_signal(self._pid, number)

    def _pause(self, _number: int, _frame: FrameType | None) -> None:
        for pid, number in ((self._pid, signal.SIGSTOP), (os.getpid(), signal.SIGSTOP), (self._pid, signal.SIGCONT)):
            if pid != _COLD:
                _send_signal(pid, number)


def _is_ours(connection: socket.socket) -> bool:
    """Return whether it's this user at the other end."""
    import socket
    import struct

    ids = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", ids)[1:] == (os.geteuid(), os.getegid())


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _to_bytes(number: int) -> bytes:
    return number.to_bytes(_NUMBER, "big")


def _receive(connection: socket.socket) -> int | None:
    """Return a number that was sent; ``None`` if the other end is gone."""
    import socket

    data = connection.recv(_NUMBER, socket.MSG_WAITALL)
    return int.from_bytes(data, "big") if len(data) == _NUMBER else None


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        return


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


# The process that has everything loaded


def serve(home: Path) -> None:
    """Load the program, and fork for each client, for as long as the project's servers run and the program is the same.

    Args:
        home: The project's folder.
    """
    import fcntl
    import json
    import selectors
    import socket
    import time

    folder = home / ".lakegate"
    try:
        fcntl.flock(_lock(folder), fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it ends
    except OSError:
        return
    started = time.time_ns()
    own = json.loads(json.dumps(surroundings()))  # in which tuples are lists, as in what clients send
    _load()
    versions = _versions()
    if max(versions.values()) > started:  # it was upgraded while it was loaded
        return
    address, draft = folder / SOCKET, folder / f"{SOCKET}.new"
    draft.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as ready:
        listening.bind(str(draft))
        listening.listen(64)
        draft.rename(address)
        ready.register(listening, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a supervisor ended
        while _has_servers(folder):
            if not ready.select(_GLANCE_S):
                continue
            connection, _ = listening.accept()
            if any(_changed_at(file) != at for file, at in versions.items()):
                connection.close()
                break
            if os.fork() == 0:
                listening.close()
                _supervise(connection, own)
            connection.close()
    address.unlink(missing_ok=True)


def _lock(folder: Path) -> int:
    return os.open(folder / "preload.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _load() -> None:
    """Import what commands import, and have ready what they'd make."""
    import gc
    import importlib
    import pkgutil
    from contextlib import suppress

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has one thread
    for name in (*(f"lakegate.cli.commands.{name}" for name in sorted(COMMANDS)), *_LOADED):
        importlib.import_module(name)
    for package in _LOADED_PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            with suppress(ImportError):  # of an extra that isn't installed
                importlib.import_module(module.name)
    from lakegate.config import Settings
    from lakegate.model.base import Value

    kinds = [Value]
    for kind in kinds:
        kinds += kind.__subclasses__()
        kind.model_rebuild()
    Settings.model_validate({})
    gc.collect()
    gc.freeze()  # else the first collection of each fork copies all of it


_LOADED = (
    *("lakegate.cli.main", "lakegate.lake", "lakegate.cli.stderr"),
    *("rich.console", "rich.table", "rich.progress", "rich.markup", "rich.box", "sqlalchemy.dialects.sqlite"),
    *("httpx", "psutil", "filelock", "pyarrow.parquet", "pyarrow.dataset", "pandas", "pyspark.sql.connect.session"),
)
_LOADED_PACKAGES = tuple(
    f"lakegate.{name}" for name in ("catalogs.nessie", "iceberg", "journal", "local", "sources", "spark", "wap")
)


def _versions() -> dict[str, int]:
    """Return the files that are loaded and when each was changed: an upgrade or a removal changes some of them."""
    files = (module.__dict__.get("__file__") for module in list(sys.modules.values()))
    return {file: _changed_at(file) for file in files if file}


def _changed_at(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - pathlib is slow for some two thousand of them
    except OSError:
        return 0


def _has_servers(folder: Path) -> bool:
    import json

    try:
        services = json.loads((folder / "stack.json").read_bytes())["services"].values()
        return any(_exists(f"/proc/{int(service['pid'])}") for service in services)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _supervise(connection: socket.socket, own: Mapping[str, Any]) -> NoReturn:
    """Run a client's order in a fork, and tell the client how it ended; if the client is killed, so is the fork."""
    import json
    import selectors
    import socket

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not _is_ours(connection):
        os._exit(1)
    length, descriptors, _, _ = socket.recv_fds(connection, _NUMBER, 3)
    with connection.makefile("rb") as stream:
        order = json.loads(stream.read(int.from_bytes(length, "big")))
    if order["surroundings"] != own:
        connection.sendall(_to_bytes(_COLD))
        os._exit(0)
    os.chdir(order["folder"])
    lives, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(lives)
            connection.close()
            _become(order, dict(zip(order["opened"], descriptors, strict=True)))
            from lakegate.cli import main as program

            program.main()
        finally:  # only if that failed; Python itself would end as a failed audit does
            os._exit(_INTERNAL)
    os.close(held)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(_to_bytes(pid))
    with selectors.DefaultSelector() as ready:
        ready.register(lives, selectors.EVENT_READ)
        ready.register(connection, selectors.EVENT_READ)
        if any(key.fileobj is connection for key, _ in ready.select()):
            _send_signal(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    try:
        connection.sendall(_to_bytes(status))
    except OSError:
        os._exit(1)
    os._exit(0)


def _become(order: Mapping[str, Any], descriptors: Mapping[int, int]) -> None:
    """Give this process what the client has."""
    import importlib
    import time

    for number in (0, 1, 2):
        os.close(number)
    for number, descriptor in descriptors.items():
        os.dup2(descriptor, number)
    for descriptor in descriptors.values():
        if descriptor not in descriptors:
            os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.umask(order["umask"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = _opened(0, "r", descriptors)
    sys.stdout = _opened(1, "w", descriptors)
    sys.stderr = _opened(2, "w", descriptors)
    sys.argv = ["lakegate", *order["words"]]
    sys.path[:] = order["path"]
    importlib.invalidate_caches()


def _opened(number: int, mode: str, descriptors: Mapping[int, int]) -> Any:
    """Return a standard stream as Python opens it when it starts; ``None`` when it is closed."""
    if number not in descriptors:
        return None
    like: Any = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    stream: Any = open(number, mode, encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if mode == "w":
        by_line = number == 2 or os.isatty(number)  # noqa: PLR2004 - standard error
        stream.reconfigure(line_buffering=by_line, write_through=like.write_through)
    return stream


if __name__ == "__main__":
    from pathlib import Path

    serve(Path(sys.argv[1]))
