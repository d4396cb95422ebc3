"""Start commands without importing anything: a process beside the local servers has loaded everything, and forks.

Imports take longer than what most commands do: half a second, and another second with PySpark. So the first command
that ends while a project's servers run leaves such a process behind (:func:`leave_behind`, :func:`serve`), unless a
timer started it. From then on, ``lakegate`` is a small client (:func:`main`): it sends its arguments, environment,
working folder and standard streams, forwards signals, and exits as the fork did. Killing or stopping the client kills
or stops the fork. If a fork would differ from a new process (:func:`surroundings`), or the program on disk has changed,
the client runs the command itself.

The fork starts the command when its client, which knows the fork's process id by then, says so. Until then, both may
give up, and the client runs the command itself. Afterwards it never does, so that nothing runs twice.

This module imports next to nothing, because every command starts with it. See docs/decisions/0085 and 0115.
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

_READING = frozenset({"checks", "completion", "diff", "inspect", "log", "metrics", "query", "runs", "status"})
_GROUPS = frozenset({"branch", "table", "tag"})
_READING_SUBCOMMANDS = frozenset({None, "files", "list", "rows", "show"})
_WRITING = frozenset({"audit", "discard", "ingest", "publish", "quarantine", "revert"})
COMMANDS = _READING | _GROUPS | _WRITING
"""Commands that a fork may run: everyday commands that end by themselves, and don't start or stop servers."""
_INTERACTIVE = frozenset({("table", "drop"), ("table", "rename"), ("table", "truncate")})
"""Exceptions: a fork can read its client's terminal, but the terminal doesn't stop it as it would stop the client."""
_OPTIONS_WITH_VALUE = ("--home", "--engine", "--catalog", "--log-format")
_READ_AT_START = (
    *("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "MIMALLOC_", "OPENSSL_"),
    *("ARROW_", "GRPC_", "OMP_", "OPENBLAS_", "PANDAS_", "PROTOCOL_BUFFERS", "PYICEBERG_", "SPARK_CONNECT_"),
)
"""Prefixes of variables that the interpreter and libraries read only when they're loaded."""
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_CONFINEMENT = ("Cap", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed")
"""Prefixes of the lines in ``/proc/self/status`` that say what a process may do, and where."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TYPED = "typed"
"""Argument of :func:`serve`'s process if a command typed at a terminal left it behind."""
SOCKET = "preload.sock"
"""The socket that the process listens on, in ``.lakegate``."""
_LONGEST_ADDRESS = 107
"""Bytes: ``sun_path`` of unix(7)."""
_RUN_IT_YOURSELF = 0
"""Sent instead of a process id."""
_GO = b"\1"
_PATIENCE_S = 1.0
"""Seconds that a client waits for each answer before it runs the command itself."""
_INTERNAL, _INTERRUPTED = 70, 130
_NUMBER = 4
_ACCEPT_TIMEOUT_S = 1.0
_STOP_POLL_MS = 20
"""How often to check whether the client was stopped: ``SIGSTOP`` can't be caught and forwarded."""
_PR_SET_PDEATHSIG = 1
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit, in a fork of the preloaded process if there is one."""
    words, variables = sys.argv[1:], dict(os.environ)
    is_linux = sys.platform == "linux"
    is_known = "_LAKEGATE_COMPLETE" in variables or is_handed_over(words)
    home = served_home(words) if is_linux and is_known else None
    try:
        status = None if home is None else _hand_over(home, words)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    if status is not None:
        _end_as(status)
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # Ctrl-C during the imports would only print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lakegate.cli import main as program

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program.main(leave_behind=partial(leave_behind, words, variables) if is_linux else None)


def leave_behind(words: list[str], variables: Mapping[str, str]) -> None:
    """Leave a process behind that will run the next commands, if the project's servers are running.

    Does nothing if there's one already, if the settings turn it off, if one has failed since the servers started, or if
    a timer started the command: timers have limits and variables that no shell has, and their commands mostly write.

    Args:
        variables: The command's environment when it started, before libraries set variables that no client has.
    """
    import fcntl
    from pathlib import Path

    home = served_home(words) if "lakegate.config" in sys.modules else None  # otherwise, it only printed help
    if home is None or not (servers := _servers_of(folder := Path(home, ".lakegate"))):
        return
    if not _is_typed() and not only_reads(words) and _control_group() not in map(_control_group, servers):
        return
    from lakegate.config import load_settings
    from lakegate.local import process

    is_fit = len(os.fsencode(folder / SOCKET)) <= _LONGEST_ADDRESS and folder.stat().st_uid == os.geteuid()
    if not is_fit or not load_settings(Path(home)).local.preload:
        return
    handle = _lock(folder)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    failed = os.pread(handle, 64, 0)
    os.close(handle)
    if failed == _servers_version(folder):
        return
    command = (sys.executable, "-P", "-m", __name__, home, *([_TYPED] if _is_typed() else []))
    inherited = process.environment(_read_at_start(variables), variables)
    process.spawn(command, env=inherited, cwd=folder, log=folder / "logs" / "preload.log")


def surroundings() -> dict[str, Any]:
    """Return what a fork can't take over from its client, so both must have the same."""
    import resource

    import lakegate

    limits = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
    return {
        "program": [lakegate.__file__, sys.version, sys.prefix, sys.path[0 if sys.flags.safe_path else 1 :]],
        "options": [sys.warnoptions, sys._xoptions, sys.flags.optimize, sys.flags.dev_mode, sys.gettrace() is not None],  # noqa: SLF001 - no other name
        "variables": _read_at_start(os.environ),
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "priority": [os.nice(0), os.sched_getscheduler(0), _read("/proc/self/oom_score_adj")],
        "limits": [resource.getrlimit(limit) for limit in dict.fromkeys(limits)],
        "machine": [os.readlink(f"/proc/self/{name}") for name in ("root", *(f"ns/{name}" for name in _NAMESPACES))],
        "confinement": [line for line in _read("/proc/self/status").splitlines() if line.startswith(_CONFINEMENT)],
    }


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as text:
        return text.read()


def is_handed_over(words: list[str]) -> bool:
    """Return whether a fork may run this command line."""
    command = _command_of(words)
    return command[0] in COMMANDS and command not in _INTERACTIVE


def only_reads(words: list[str]) -> bool:
    """Return whether this command line only reads."""
    command, subcommand = _command_of(words)
    return command in _READING or (command in _GROUPS and subcommand in _READING_SUBCOMMANDS)


def _command_of(words: list[str]) -> tuple[str | None, str | None]:
    """Return the command after any global options, and the word after it: a group's command, or an argument."""
    left = iter(words)
    named: list[str | None] = []
    for word in left:
        if not word.startswith("-"):
            named.append(word)
        elif word in _OPTIONS_WITH_VALUE:
            next(left, None)
    command, subcommand, *_ = *named, None, None
    return command, subcommand


def _is_typed() -> bool:
    return any(map(os.isatty, (0, 1, 2)))


def _control_group(pid: int | str = "self") -> str | None:
    try:
        return _read(f"/proc/{pid}/cgroup")
    except OSError:  # it has just ended
        return None


def served_home(words: list[str]) -> str | None:
    """Return the folder of a project whose servers were ever started, as :func:`lakegate.config.find_home` does."""
    if any("/dev/fd/" in text or "/proc/" in text for text in (*words, *os.environ.values())):
        return None  # a file descriptor from a shell's <(…), which only this process has
    try:
        folder = os.getcwd()
    except OSError:
        return None
    for at, word in enumerate(words):
        if word == "--home" and at + 1 < len(words):
            folder = os.path.join(folder, words[at + 1])
        elif word.startswith("--home="):
            folder = os.path.join(folder, word.removeprefix("--home="))
    while not _exists(folder, ".lakegate") and not _exists(folder, "lakegate.toml") and folder != "/":
        folder = os.path.dirname(folder)
    return folder if _exists(folder, ".lakegate", "stack.json") else None


def _exists(*parts: str) -> bool:
    return os.path.exists(os.path.join(*parts))


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_READ_AT_START)}


# The client


def _hand_over(home: str, words: list[str]) -> int | None:
    """Have a fork run the command, and return its wait status; ``None`` if there's no fork to run it."""
    import socket

    is_refused = os.environ.get("LAKEGATE_LOCAL_PRELOAD", "true").strip().lower() not in _YES
    # If one of the standard streams were closed, the socket would take its number.
    if is_refused or _is_in_background() or not all(_is_open(number) for number in (0, 1, 2)):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(os.path.join(home, ".lakegate", SOCKET))
            if not _peer_pid(connection) or not (pid := _send_order(connection, words)):
                return None
            _start_fork(connection, pid)
        except OSError:  # the process has just ended, or hangs
            return None
        connection.settimeout(None)
        status = _receive(connection)
        return signal.SIGKILL if status is None else status


def _send_order(connection: socket.socket, words: list[str]) -> int | None:
    """Send what a command needs. Return the id of the fork that waits to start, or nothing if there's none."""
    import json

    umask = os.umask(0o077)
    os.umask(umask)
    order = {
        "words": words,
        "surroundings": surroundings(),
        "typed": _is_typed(),
        "control group": None if only_reads(words) or _is_typed() else _control_group(),
        "variables": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "umask": umask,
    }
    data = json.dumps(order).encode()
    connection.sendall(_to_bytes(len(data)) + data)
    return _receive(connection)


def _start_fork(connection: socket.socket, pid: int) -> None:
    """Start the command in the fork, and forward signals to it from now on.

    The fork gets the standard streams only now: if it hung earlier, whoever reads them would wait for it.
    """
    import socket

    def forward(number: int, _frame: FrameType | None) -> None:
        _send_signal(pid, number)

    def pause(_number: int, _frame: FrameType | None) -> None:
        _send_signal(pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _send_signal(pid, signal.SIGCONT)

    handlers = {**dict.fromkeys(_FORWARDED, forward), signal.SIGTSTP: pause}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    try:
        socket.send_fds(connection, [_GO], [0, 1, 2])
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _peer_pid(connection: socket.socket) -> int | None:
    """Return the process id of the other end; ``None`` if that's another user's."""
    import socket
    import struct

    ids = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, *user = struct.unpack("3i", ids)
    return int(pid) if user == [os.geteuid(), os.getegid()] else None


def _is_in_background() -> bool:
    """Return whether the shell would stop this process if it read from the terminal."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # standard input isn't a terminal
        return False


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _to_bytes(number: int) -> bytes:
    return number.to_bytes(_NUMBER, "big")


def _receive(connection: socket.socket) -> int | None:
    """Receive a number; ``None`` if the other end is gone."""
    try:
        data = connection.recv(_NUMBER)  # bytes that are sent at once arrive at once
    except ConnectionResetError:
        return None
    return int.from_bytes(data, "big") if len(data) == _NUMBER else None


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        return


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


# The preloaded process


def serve(home: Path, *, is_typed: bool = False) -> None:
    """Load the program, and fork for each client as long as the project's servers run and the program doesn't change.

    Args:
        is_typed: Whether the command that left this behind was typed at a terminal. If not, this process ends when it
            can't run a command that was, so that that command leaves a better one behind.
    """
    import fcntl
    import json
    import socket
    import time

    folder = home / ".lakegate"
    lock = _lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process ends
    except OSError:
        return
    os.ftruncate(lock, 0)
    os.pwrite(lock, _servers_version(folder), 0)  # stays there if this process fails
    for number in (*_FORWARDED, signal.SIGQUIT):  # inherited from a command that may ignore some
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    started = time.time_ns()
    own = json.loads(json.dumps(surroundings()))  # turns tuples into lists, as in what clients send
    address, draft = folder / SOCKET, folder / f"{SOCKET}.new"
    draft.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(draft))  # before the slow imports, because not every file system supports sockets
        _load()
        versions = _versions() | {file: _changed_at(file) for file in [str(home / "lakegate.toml")]}
        is_current = not any(started < at <= time.time_ns() for at in versions.values())  # not changed meanwhile
        listening.listen(64)
        listening.settimeout(_ACCEPT_TIMEOUT_S)
        draft.rename(address)
        inode = address.stat().st_ino
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
        while is_current and address.exists() and _servers_of(folder):
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            is_current = all(_changed_at(file) == at for file, at in versions.items())
            if is_current and os.fork() == 0:
                listening.close()
                os.close(lock)
                try:
                    _supervise(connection, own, None if is_typed else (address, inode))
                finally:  # only if the client is gone
                    os._exit(_INTERNAL)
            connection.close()
    address.unlink(missing_ok=True)
    os.ftruncate(lock, 0)


def _servers_version(folder: Path) -> bytes:
    return str(_changed_at(str(folder / "stack.json"))).encode()


def _lock(folder: Path) -> int:
    return os.open(folder / "preload.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _load() -> None:
    """Import what commands import, and build what they would build."""
    import gc
    import importlib
    import pkgutil
    from contextlib import suppress

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has one thread
    for name in (*(f"lakegate.cli.commands.{name}" for name in sorted(COMMANDS)), *_LOADED):
        importlib.import_module(name)
    for package in _LOADED_PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            with suppress(ImportError):  # its extra isn't installed
                importlib.import_module(module.name)
    from lakegate.config import Settings
    from lakegate.model.base import Value

    kinds = [Value]
    for kind in kinds:
        kinds += kind.__subclasses__()
        kind.model_rebuild()
    Settings.model_validate({})
    gc.collect()
    gc.freeze()  # otherwise, the first collection of each fork would copy all of it


_LOADED = (
    *("lakegate.cli.main", "lakegate.lake", "lakegate.cli.stderr"),
    *("rich.console", "rich.table", "rich.progress", "rich.markup", "rich.box", "sqlalchemy.dialects.sqlite"),
    *("httpx", "httpcore", "sqlite3", "psutil", "filelock"),
    *("pyarrow.parquet", "pyarrow.dataset", "pandas", "pyspark.sql.connect.session"),
)
_LOADED_PACKAGES = tuple(
    f"lakegate.{name}" for name in ("catalogs.nessie", "iceberg", "journal", "local", "sources", "spark", "wap")
)


def _versions() -> dict[str, int]:
    """Return all loaded files and when each changed: an upgrade or a removal changes some of them."""
    files = (module.__dict__.get("__file__") for module in list(sys.modules.values()))
    return {file: _changed_at(file) for file in files if file}


def _changed_at(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _servers_of(folder: Path) -> list[int]:
    """Return the process ids of the project's running servers."""
    import json

    try:
        services = json.loads((folder / "stack.json").read_bytes())["services"].values()
        return [pid for service in services if _exists(f"/proc/{(pid := int(service['pid']))}")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _supervise(connection: socket.socket, own: Mapping[str, Any], given_up: tuple[Path, int] | None) -> NoReturn:
    """Run a client's order in a fork, and send the client its wait status.

    If the client is killed, kill the fork. While the client is stopped, stop the fork.
    """
    import json
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (client := _peer_pid(connection)):
        os._exit(1)
    with connection.makefile("rb") as stream:
        order = json.loads(stream.read(int.from_bytes(stream.read(_NUMBER), "big")))
    # A timer's unit may have limits of its own, which apply to its control group.
    if order["surroundings"] != own or order["control group"] not in (None, _control_group()):
        if order["typed"] and order["surroundings"]["machine"] == own["machine"] and given_up is not None:
            address, inode = given_up
            if address.stat().st_ino == inode:  # otherwise, it's already another process's
                address.unlink()
        connection.sendall(_to_bytes(_RUN_IT_YOURSELF))
        os._exit(0)
    os.chdir(order["folder"])
    lives, held = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until the fork can handle them as a command
    supervisor, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(lives)
        _run(connection, supervisor, order)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(held)
    connection.sendall(_to_bytes(pid))
    ready = select.poll()
    ready.register(lives)
    ready.register(connection, 0)  # only for POLLHUP: what the client sends is for the fork
    was_stopped = False
    while not (events := ready.poll(_STOP_POLL_MS)):
        if _is_stopped(client) != was_stopped:
            was_stopped = not was_stopped
            _send_signal(pid, signal.SIGSTOP if was_stopped else signal.SIGCONT)
    if any(descriptor == connection.fileno() for descriptor, _ in events):
        _send_signal(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    connection.sendall(_to_bytes(status))
    os._exit(0)


def _is_stopped(pid: int) -> bool:
    """Return whether a process is in the state ``T`` of proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:  # it has ended
        return False


def _run(connection: socket.socket, supervisor: int, order: Mapping[str, Any]) -> NoReturn:
    """Run an order in this process when its client says so."""
    import ctypes
    import socket
    import traceback

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        message, descriptors, _, _ = socket.recv_fds(connection, len(_GO), 3)
        if message != _GO or os.getppid() != supervisor:
            os._exit(_INTERNAL)
        connection.close()
        _take_over(order, descriptors)
        from lakegate.cli import main as program

        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        program.main()
    except ConnectionError:
        pass
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    except BaseException:  # noqa: BLE001 - Python would exit with 1, which means a failed audit
        traceback.print_exc()
    finally:
        os._exit(_INTERNAL)


def _take_over(order: Mapping[str, Any], descriptors: list[int]) -> None:
    """Give this process the client's standard streams, environment, umask, arguments and path."""
    import importlib
    import time

    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.umask(order["umask"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = _open_stream(0, "r"), _open_stream(1, "w"), _open_stream(2, "w")
    sys.argv = ["lakegate", *order["words"]]
    sys.path[:] = order["path"]
    importlib.invalidate_caches()


def _open_stream(number: int, mode: str) -> Any:
    """Open a standard stream as Python does when it starts."""
    like: Any = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    stream: Any = open(number, mode, encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if mode == "w":
        by_line = number == 2 or os.isatty(number)  # 2: standard error
        stream.reconfigure(line_buffering=by_line, write_through=like.write_through)
    return stream


if __name__ == "__main__":
    from pathlib import Path

    serve(Path(sys.argv[1]), is_typed=_TYPED in sys.argv[2:])
