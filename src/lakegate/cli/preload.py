"""Commands that load nothing: a process beside the local servers has imported everything, and forks for each.

Importing takes longer than what most commands do: half a second, and one more with PySpark. So the first command that
ends while a project's servers run, and that isn't a timer's, leaves such a process behind (:func:`begin`,
:func:`serve`). From then on, what users start is a small client (:func:`main`): it hands over its arguments,
environment, working folder and standard streams, passes signals on, and ends as the fork did. Who kills or stops the
client kills or stops the fork. Where a fork would differ from a process of its own (:func:`surroundings`), or the
program on disk has changed since, the command runs as if there were none.

A fork begins when its client, which knows its id by then, has told it so. Until then either may give up, and the
command runs where it was started; from then on it never does, so that nothing runs twice.

This module imports next to nothing, as every command begins with it. See docs/decisions/0085 and 0115.
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
_READING_OF_GROUPS = frozenset({None, "files", "list", "rows", "show"})
_WRITING = frozenset({"audit", "discard", "ingest", "publish", "quarantine", "revert"})
COMMANDS = _READING | _GROUPS | _WRITING
"""Commands that are handed over: those of every day that end by themselves, and neither start servers nor stop them."""
_ASKING = frozenset({("table", "drop"), ("table", "rename"), ("table", "truncate")})
"""Those of them that aren't: a fork reads its client's terminal, but isn't stopped where its client would be."""
_WITH_VALUE = ("--home", "--engine", "--catalog", "--log-format")
_READ_AT_START = (
    *("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "MIMALLOC_", "OPENSSL_"),
    *("ARROW_", "GRPC_", "OMP_", "OPENBLAS_", "PANDAS_", "PROTOCOL_BUFFERS", "PYICEBERG_", "SPARK_CONNECT_"),
)
"""How variables begin that the interpreter and libraries read when they are loaded, and not again."""
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_CONFINEMENT = ("Cap", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed")
"""How the lines of ``/proc/self/status`` begin that say what a process may do and where."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TYPED = "typed"
"""Says that a command left the process behind that was typed at a terminal."""
SOCKET = "preload.sock"
"""Where the process listens, in ``.lakegate``."""
_LONGEST_ADDRESS = 107
"""Bytes: ``sun_path`` of unix(7)."""
_COLD = 0
"""In place of a process's id: run the command without us."""
_GO = b"\1"
_PATIENCE_S = 1.0
"""How long a client waits for each answer before it runs the command itself."""
_INTERNAL, _INTERRUPTED = 70, 130
_NUMBER = 4
_GLANCE_S = 1.0
_STOPPED_WITHIN_MS = 20
"""How long a fork runs on after its client was stopped: ``SIGSTOP`` can't be passed on, only seen."""
_PR_SET_PDEATHSIG = 1
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit, in a fork of the process that has it loaded, if there is one."""
    words, variables = sys.argv[1:], dict(os.environ)
    is_linux = sys.platform == "linux"
    is_known = "_LAKEGATE_COMPLETE" in variables or is_handed_over(words)
    home = served_home(words) if is_linux and is_known else None
    try:
        status = None if home is None else _hand_over(home, words)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    if status is not None:
        _end_like(status)
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # a traceback would be all that's said while this loads
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lakegate.cli import main as program

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program.main(leave_behind=partial(begin, words, variables) if is_linux else None)


def begin(words: list[str], variables: Mapping[str, str]) -> None:
    """Leave a process behind that runs the next commands in a project whose servers run.

    There's none if one is there already, the settings refuse it, one has failed since the servers were started, or the
    command is a timer's: these have limits and variables that no shell has, and mostly write.

    Args:
        variables: The command's environment when it began: libraries set variables that no client has.
    """
    import fcntl
    from pathlib import Path

    home = served_home(words) if "lakegate.config" in sys.modules else None  # else the command was a help text
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
    if failed == _servers(folder):
        return
    command = (sys.executable, "-P", "-m", __name__, home, *([_TYPED] if _is_typed() else []))
    inherited = process.environment(_read_at_start(variables), variables)
    process.spawn(command, env=inherited, cwd=folder, log=folder / "logs" / "preload.log")


def surroundings() -> dict[str, Any]:
    """Return what a fork can't take over from its client, so that it must have the same."""
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
    """Return whether a command line, in which global options may come first, is one that a fork may run."""
    command = _named(words)
    return command[0] in COMMANDS and command not in _ASKING


def only_reads(words: list[str]) -> bool:
    """Return whether a command line, in which global options may come first, is one that only reads."""
    command, of_group = _named(words)
    return command in _READING or (command in _GROUPS and of_group in _READING_OF_GROUPS)


def _named(words: list[str]) -> tuple[str | None, str | None]:
    """Return the command, and the word after it: the command of a group, or an argument."""
    left = iter(words)
    named: list[str | None] = []
    for word in left:
        if not word.startswith("-"):
            named.append(word)
        elif word in _WITH_VALUE:
            next(left, None)
    command, of_group, *_ = *named, None, None
    return command, of_group


def _is_typed() -> bool:
    return any(map(os.isatty, (0, 1, 2)))


def _control_group(pid: int | str = "self") -> str | None:
    try:
        return _read(f"/proc/{pid}/cgroup")
    except OSError:  # it has just ended
        return None


def served_home(words: list[str]) -> str | None:
    """Return the project's folder if it has had servers, as :func:`lakegate.config.find_home` finds it."""
    if any("/dev/fd/" in text or "/proc/" in text for text in (*words, *os.environ.values())):
        return None  # a shell's <(…), which only this process has
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
    """Have a command run, and return how it ended, as :func:`os.waitpid` does; ``None`` if nobody runs it."""
    import socket

    is_refused = os.environ.get("LAKEGATE_LOCAL_PRELOAD", "true").strip().lower() not in _YES
    # Were one of them closed, the socket would become it.
    if is_refused or _is_in_background() or not all(_is_open(number) for number in (0, 1, 2)):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(os.path.join(home, ".lakegate", SOCKET))
            if not _peer(connection) or not (pid := _order(connection, words)):
                return None
            _start(connection, pid)
        except OSError:  # it ended just now, or hangs
            return None
        connection.settimeout(None)
        status = _receive(connection)
        return signal.SIGKILL if status is None else status


def _order(connection: socket.socket, words: list[str]) -> int | None:
    """Hand over what a command needs, and return the id of the process that waits for :func:`_start` to run it."""
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


def _start(connection: socket.socket, pid: int) -> None:
    """Start the command in its process, and pass signals on to that from now on.

    It gets the standard streams only now: if it hung earlier, whoever reads them would wait for it.
    """
    import socket

    def pass_on(number: int, _frame: FrameType | None) -> None:
        _send_signal(pid, number)

    def pause(_number: int, _frame: FrameType | None) -> None:
        _send_signal(pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _send_signal(pid, signal.SIGCONT)

    handlers = {**dict.fromkeys(_PASSED_ON, pass_on), signal.SIGTSTP: pause}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    try:
        socket.send_fds(connection, [_GO], [0, 1, 2])
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _peer(connection: socket.socket) -> int | None:
    """Return the id of the process at the other end; ``None`` if it's another user's."""
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
    """Return a number that was sent; ``None`` if the other end is gone."""
    try:
        data = connection.recv(_NUMBER)  # sent at once, they come at once
    except ConnectionResetError:
        return None
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


def serve(home: Path, *, is_typed: bool = False) -> None:
    """Load the program, and fork for each client while the project's servers run and the program stays the same.

    Args:
        is_typed: Whether the command that left this behind was typed at a terminal. If it wasn't, the process ends when
            a typed command comes that it can't run, so that one is left behind that can.
    """
    import fcntl
    import json
    import socket
    import time

    folder = home / ".lakegate"
    lock = _lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it ends
    except OSError:
        return
    os.ftruncate(lock, 0)
    os.pwrite(lock, _servers(folder), 0)  # stays if this fails
    for number in (*_PASSED_ON, signal.SIGQUIT):  # the command that left this behind may ignore some
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    started = time.time_ns()
    own = json.loads(json.dumps(surroundings()))  # in which tuples are lists, as in what clients send
    address, draft = folder / SOCKET, folder / f"{SOCKET}.new"
    draft.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(draft))  # before it takes the time to load: not every file system has sockets
        _load()
        versions = _versions() | {file: _changed_at(file) for file in [str(home / "lakegate.toml")]}
        is_current = not any(started < at <= time.time_ns() for at in versions.values())  # or changed while it loaded
        listening.listen(64)
        listening.settimeout(_GLANCE_S)
        draft.rename(address)
        inode = address.stat().st_ino
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a supervisor ended
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
                finally:  # of a client that has gone
                    os._exit(_INTERNAL)
            connection.close()
    address.unlink(missing_ok=True)
    os.ftruncate(lock, 0)


def _servers(folder: Path) -> bytes:
    """Return what changes when the servers do."""
    return str(_changed_at(str(folder / "stack.json"))).encode()


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
    *(
        "httpx",
        "httpcore",
        "sqlite3",
        "psutil",
        "filelock",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "pandas",
        "pyspark.sql.connect.session",
    ),
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
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _servers_of(folder: Path) -> list[int]:
    """Return the ids of the project's servers that run."""
    import json

    try:
        services = json.loads((folder / "stack.json").read_bytes())["services"].values()
        return [pid for service in services if _exists(f"/proc/{(pid := int(service['pid']))}")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _supervise(connection: socket.socket, own: Mapping[str, Any], given_up: tuple[Path, int] | None) -> NoReturn:
    """Run a client's order in a fork, and tell the client how it ended.

    If the client is killed, so is the fork; while it's stopped, so is the fork.
    """
    import json
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (client := _peer(connection)):
        os._exit(1)
    with connection.makefile("rb") as stream:
        order = json.loads(stream.read(int.from_bytes(stream.read(_NUMBER), "big")))
    # A timer's unit may have limits of its own, which bind its control group.
    if order["surroundings"] != own or order["control group"] not in (None, _control_group()):
        if order["typed"] and order["surroundings"]["machine"] == own["machine"] and given_up is not None:
            address, inode = given_up
            if address.stat().st_ino == inode:  # else it's another process's already
                address.unlink()
        connection.sendall(_to_bytes(_COLD))
        os._exit(0)
    os.chdir(order["folder"])
    lives, held = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until they end the fork as they'd end the command
    supervisor, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(lives)
        _run(connection, supervisor, order)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(held)
    connection.sendall(_to_bytes(pid))
    ready = select.poll()
    ready.register(lives)
    ready.register(connection, 0)  # for POLLHUP: what the client says is the fork's to read
    was_stopped = False
    while not (events := ready.poll(_STOPPED_WITHIN_MS)):
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
    """Run an order in this process, if and when its client says so."""
    import ctypes
    import socket
    import traceback

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        said, descriptors, _, _ = socket.recv_fds(connection, len(_GO), 3)
        if said != _GO or os.getppid() != supervisor:
            os._exit(_INTERNAL)
        connection.close()
        _become(order, descriptors)
        from lakegate.cli import main as program

        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        program.main()
    except ConnectionError:
        pass
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    except BaseException:  # noqa: BLE001 - Python would end as a failed audit does
        traceback.print_exc()
    finally:
        os._exit(_INTERNAL)


def _become(order: Mapping[str, Any], descriptors: list[int]) -> None:
    """Give this process what the client has."""
    import importlib
    import time

    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.umask(order["umask"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w"), _opened(2, "w")
    sys.argv = ["lakegate", *order["words"]]
    sys.path[:] = order["path"]
    importlib.invalidate_caches()


def _opened(number: int, mode: str) -> Any:
    """Return a standard stream as Python opens it when it starts."""
    like: Any = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    stream: Any = open(number, mode, encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if mode == "w":
        by_line = number == 2 or os.isatty(number)  # standard error
        stream.reconfigure(line_buffering=by_line, write_through=like.write_through)
    return stream


if __name__ == "__main__":
    from pathlib import Path

    serve(Path(sys.argv[1]), is_typed=_TYPED in sys.argv[2:])
