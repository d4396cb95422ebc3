"""Processes of our programs that don't import everything again: forks of one that has.

A command that talks to Spark spends a second of processor time on importing pyspark, pandas and pyarrow, and the tests
run hundreds. :func:`words` returns what to start instead: a client that imports nothing and has a process do it that
imported them once, and forks. The fork has the arguments, environment, working folder, standard streams and signals of
the client, which stops and ends as it does. What it can't show is how a program starts: some tests of each program
start it cold.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support import warm_client
from support.waiting import wait_ready

CLI = "lakegate"
DBOS = "lakegate.integrations.dbos"
PREFECT = "lakegate.integrations.prefect"
_PACKAGES = (
    "catalogs",
    "checks",
    "cli.admin",
    "cli.commands",
    "iceberg",
    "journal",
    "loading",
    "sources",
    "spark",
    "storage",
    "wap",
)
_LIBRARIES = ("boto3", "httpx", "pandas", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql.connect.session")
_LAZY = (
    *("anyio", "encodings.ascii", "encodings.idna", "grpc._auth", "grpc._channel", "grpc._plugin_wrapping", "h11"),
    *("h2.connection", "httpcore", "pyiceberg.avro.decoder_fast", "rich._emoji_codes", "sqlalchemy.dialects.sqlite"),
    *("sqlglot.dialects.spark", "sqlite3"),
)
"""What libraries import when they are first used, which each fork would else do again."""
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How variables begin that an interpreter reads when it starts, and not again."""
_NOT_READ = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_START_S = 240
_STARTING = threading.Lock()
_SERVERS: dict[str, Server] = {}
_TESTS = Path(__file__).parents[1]
_ENDED_WELL: list[int] = []
"""Not empty in a program's process that has come to the end of its text."""


def words(program: str) -> tuple[str, ...]:
    """Return what starts a module (:data:`CLI`, :data:`DBOS`, :data:`PREFECT`) as ``python -m`` would, but warm."""
    return *python(program), "-m", program


def python(program: str = CLI) -> tuple[str, ...]:
    """Return what stands for ``python`` before ``-c TEXT`` or ``-m MODULE``, with what a program imports."""
    return sys.executable, "-I", "-S", warm_client.__file__, str(_server(program).address)


class Server:
    """The process that has imported a program; it ends when this one does."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lakegate-warm-")
        self.address = Path(self._folder.name) / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.warm", self.address, program],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl+C is for the tests
            # Prefect would make its folder in the user's.
            env={**os.environ, "PYTHONPATH": str(_TESTS), "PREFECT_HOME": self._folder.name},
        )
        wait_ready(self._process, self.address.exists, within_s=_START_S)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def _server(program: str) -> Server:
    with _STARTING:
        if program not in _SERVERS:
            _SERVERS[program] = Server(program)
            atexit.register(_SERVERS[program].close)
        return _SERVERS[program]


def _serve(address: Path, program: str) -> None:
    """Import what a program needs, and fork for each client until standard input ends."""
    for name in _modules(program):
        with contextlib.suppress(ImportError):  # what only some other module makes, or a platform has
            importlib.import_module(name)
    _build_models(BaseModel)
    gc.collect()
    gc.freeze()  # else the first collection of each fork copies all pages
    draft = address.with_suffix(".draft")
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as ready:
        listening.bind(str(draft))
        listening.listen(64)
        draft.rename(address)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a supervisor ended
        ready.register(listening, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listening for key, _ in ready.select()):
            connection, _ = listening.accept()
            if os.fork() == 0:
                break
            connection.close()
        else:
            return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _supervise(connection)


def _build_models(kind: type[BaseModel]) -> None:
    """Build what Pydantic needs to validate, which each fork would else do when it first uses a model."""
    for model in kind.__subclasses__():
        if model.__module__.startswith("lakegate."):
            model.model_rebuild()
        _build_models(model)


def _modules(program: str) -> list[str]:
    """Return what to import for a program."""
    packages = [f"lakegate.{name}" for name in _PACKAGES] + [program] * (program != CLI)
    found = [*_LIBRARIES, *_LAZY, "lakegate.cli.main", "lakegate.components"]
    for package in packages:
        path = importlib.import_module(package).__path__
        names = (one.name for one in pkgutil.walk_packages(path, f"{package}."))
        found += [name for name in names if not name.endswith("__main__")]
    return found


def _supervise(connection: socket.socket) -> None:
    """Run a client's order in a fork, and tell the client how it ended."""
    length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        order = marshal.loads(stream.read(int.from_bytes(length, "big")))  # noqa: S302 - our own client wrote it
    (kind, what, *arguments), environment, folder, opened = order
    if _read_at_start(environment) != _read_at_start(os.environ):
        connection.sendall(warm_client.to_bytes(warm_client.COLD))
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(dict(zip(opened, descriptors, strict=True)), environment, folder)
        if kind == "-c":
            sys.argv = ["-c", *arguments]
            sys.modules["__main__"] = main = types.ModuleType("__main__")  # which has nothing of what is imported here
            main.__annotations__ = {}
            exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102 - as python -c does
        else:
            sys.argv = [what, *arguments]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        _ENDED_WELL.append(pid)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(warm_client.to_bytes(pid))
    _report(pid, connection)
    os._exit(0)


def _leave_modules_alone() -> None:
    """End a program that has come to its end, threads and exit functions included, without destroying its modules.

    That would touch, and so copy, each page of what is imported: 0.16 s.
    """
    if _ENDED_WELL:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(0)


def _report(pid: int, connection: socket.socket) -> None:
    """Tell the client how its program stops and ends; kill the program when the client was killed."""
    changes, changed = socket.socketpair()
    changed.settimeout(0)
    signal.set_wakeup_fd(changed.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    changed.send(b"\0")  # what happened before
    with selectors.DefaultSelector() as ready:
        ready.register(changes, selectors.EVENT_READ)
        ready.register(connection, selectors.EVENT_READ)
        while all(key.fileobj is changes for key, _ in ready.select()):
            changes.recv(64)
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found:
                with contextlib.suppress(OSError):
                    connection.sendall(warm_client.to_bytes(status))
                if not os.WIFSTOPPED(status):
                    return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(_READ_AT_START) and name not in _NOT_READ
    }


def _become(descriptors: Mapping[int, int], environment: Mapping[str, str], folder: str) -> None:
    """Give this process what a client has."""
    for number in (0, 1, 2):
        os.close(number)
    for number, descriptor in descriptors.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = _opened(0, "r", descriptors)
    sys.stdout = _opened(1, "w", descriptors)
    sys.stderr = _opened(2, "w", descriptors)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [folder, *paths, *(path for path in sys.path[1:] if path != str(_TESTS))]
    importlib.invalidate_caches()
    if (prefect := sys.modules.get("prefect.context")) is not None:
        prefect.refresh_global_settings_context()  # which were read when it was imported


def _opened(number: int, mode: str, descriptors: Mapping[int, int]) -> Any:
    """Return a standard stream as Python opens it when it starts; ``None`` when it is closed."""
    if number not in descriptors:
        return None
    before = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    assert before is not None
    return open(
        number,
        mode,
        encoding=before.encoding,
        errors=before.errors,
        newline=None if mode == "r" else "\n",
        buffering=1 if number == 2 or os.isatty(number) else -1,
        closefd=False,
    )


if __name__ == "__main__":
    atexit.register(_leave_modules_alone)  # the first to be registered is the last to be called
    _serve(Path(sys.argv[1]), sys.argv[2])
