"""The running servers as values, the file that stores them, and the locks on them.

The file is ``.lakegate/stack.json`` (mode 0600: it holds the token). It keeps the ports of stopped servers, so that
addresses stay the same after ``down`` and ``up``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from lakegate.config import HOME_NAME
from lakegate.errors import ConfigurationError, LakegateError, LocalStackError
from lakegate.local.stores import SparkStores
from lakegate.model.base import Value
from lakegate.model.words import size
from lakegate.ports import Narrator

ServiceName = Literal["nessie", "spark"]
SERVICE_NAMES: tuple[ServiceName, ...] = ("nessie", "spark")

_STATE_NAME = "stack.json"
_SERVER_NEEDS_BYTES = 256 * 2**20


class ServiceState(Value):
    """One server as it was started.

    Attributes:
        name: ``nessie`` or ``spark``.
        create_time: When the process started, in seconds since the epoch, by the operating system's clock.
        instance: Random text on the process's command line. No other process has it, even if the pid was reused.
        token: Bearer token that clients must send (``spark`` only). Not in ``repr``.
        stores: Object stores that it reaches (``spark`` only).
        credentials_mark: A keyed hash of its credentials for these stores, which doesn't reveal them.
    """

    name: ServiceName
    pid: int = Field(gt=1)
    create_time: float
    instance: str = Field(min_length=16)
    port: int = Field(gt=0, lt=65536)
    token: str | None = Field(default=None, repr=False)
    log: str
    started_at: datetime
    version: str
    stores: SparkStores = SparkStores()
    credentials_mark: str | None = None


def spark_url(spark: ServiceState) -> str:
    """Return Spark Connect's address with its token: a secret, never show it.

    The host is ``localhost`` because PySpark sends a token without TLS to no other host.
    """
    return f"sc://localhost:{spark.port}/;token={spark.token}"


class StackState(Value):
    """The project's servers, running and answering. ``home`` is its folder."""

    home: str
    services: dict[ServiceName, ServiceState]

    @property
    def nessie(self) -> ServiceState:
        """Nessie, unless the project has another catalog."""
        return self.services["nessie"]

    @property
    def spark(self) -> ServiceState:
        """Spark."""
        return self.services["spark"]

    @property
    def nessie_uri(self) -> str:
        """Nessie's API v2."""
        return f"http://127.0.0.1:{self.nessie.port}/api/v2"

    @property
    def spark_url(self) -> str:
        """Spark Connect's address with its token: a secret, never show it."""
        return spark_url(self.spark)

    @property
    def warehouse(self) -> str:
        """Root of the tables' files.

        Not percent-encoded: neither Hadoop nor PyArrow decodes paths, so ``%20`` would become part of the name.
        """
        return f"file://{Path(self.home) / HOME_NAME / 'warehouse'}"


class ServiceStatus(Value):
    """The status of one server.

    Attributes:
        state: ``running`` if it answers, ``unresponsive`` if it's alive but doesn't answer (it may be starting),
            otherwise ``stopped``.
    """

    name: ServiceName
    state: Literal["running", "stopped", "unresponsive"]
    pid: int | None = None
    port: int | None = None
    uptime_s: float | None = None
    memory_bytes: int | None = None
    log: str
    address: str | None = None


class StateFile(Value):
    """The content of the state file.

    Attributes:
        home: The project's folder. A copy of the folder must not use the original's servers.
        ports: The ports to prefer at the next start.
        services: The servers that were started.
        stores: The stores that Spark was ever required to reach, and reaches after each start.
    """

    home: str
    ports: dict[ServiceName, int] = Field(default_factory=dict)
    services: dict[ServiceName, ServiceState] = Field(default_factory=dict)
    stores: SparkStores = SparkStores()

    def with_service(self, service: ServiceState) -> StateFile:
        """Return a copy in which ``service`` is running."""
        return self.model_copy(
            update={
                "ports": {**self.ports, service.name: service.port},
                "services": {**self.services, service.name: service},
            }
        )

    def without(self, *names: str) -> StateFile:
        """Return a copy in which the named servers aren't running. Their ports are kept."""
        return self.model_copy(update={"services": {k: v for k, v in self.services.items() if k not in names}})


class StackFolder:
    """The parts of a project's folder ``.lakegate/`` that the stack uses."""

    def __init__(self, home: Path) -> None:
        self.home = Path(os.path.realpath(home))
        self.path = self.home / HOME_NAME
        self.state_path = self.path / _STATE_NAME
        self.lock_path = self.path / "stack.lock"
        self.usage_path = self.path / "spark.lock"
        self.stack_usage_path = self.path / "stack.use"
        self.idle_path = self.path / "idle.lock"
        self.logs = self.path / "logs"
        self.tmp = self.path / "tmp"
        self.warehouse = self.path / "warehouse"
        self.nessie_store = self.path / "nessie"

    def log(self, name: ServiceName) -> Path:
        """Return the path of a server's log."""
        return self.logs / f"{name}.log"

    def scratch(self, name: ServiceName) -> Path:
        """Return a server's folder for files that it needs only while it runs."""
        return self.tmp / name

    def create(self) -> None:
        """Create missing folders, private to this user.

        Raises:
            ConfigurationError: If the folder isn't writable.
            LocalStackError: If the disk is nearly full.
        """
        try:
            for folder in (self.path, self.logs, self.tmp, self.warehouse, self.nessie_store):
                folder.mkdir(mode=0o700, parents=folder == self.path, exist_ok=True)
            if self.path.stat().st_mode & 0o077:
                self.path.chmod(0o700)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise self.unusable(error) from error
        if free < _SERVER_NEEDS_BYTES:
            raise LocalStackError(
                f"The disk of {self.path} has only {size(free)} left; the local stack needs at least "
                f"{size(_SERVER_NEEDS_BYTES)} to start.",
                hint="Free some space there, or run lakegate in a folder on another disk.",
                folder=str(self.path),
            )

    def read(self) -> StateFile | None:
        """Return the stored state; ``None`` if there is none, or it can't be parsed."""
        try:
            return StateFile.model_validate_json(self.state_path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        except OSError as error:
            raise self.unusable(error) from error

    def write(self, state: StateFile) -> None:
        """Replace the state file atomically."""
        draft = self.state_path.with_name(f"{_STATE_NAME}.{os.getpid()}-{secrets.token_hex(4)}")
        text = json.dumps(state.model_dump(mode="json"), indent=2)
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.state_path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise self.unusable(error) from error

    def unusable(self, error: OSError) -> LakegateError:
        """Return the error for a folder or file that the operating system refuses. Only a full disk may pass."""
        is_denied = isinstance(error, (PermissionError, NotADirectoryError)) or error.errno == errno.EROFS
        return (ConfigurationError if is_denied else LocalStackError)(
            f"The local stack can't use {error.filename or self.path}: {error.strerror or error}.",
            hint=f"Make {self.path} a writable folder with free space, or run lakegate elsewhere.",
            folder=str(self.path),
        )


_MINUTE_S = 60


@contextlib.contextmanager
def locked(path: Path, doing: str, narrator: Narrator, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock at ``path`` while the body runs. The operating system releases it when the process ends.

    Args:
        path: The lock's file. Created if missing, readable only by this user.
        doing: What the lock's holder does, for messages: ``starting Nessie``.
        narrator: Shows it if this process has to wait for another one.
    """
    import filelock

    lock = filelock.FileLock(path, mode=0o600)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            with narrator.step(f"Waiting for another lakegate that is {doing}"):
                lock.acquire(timeout=timeout_s)
    except filelock.Timeout:
        raise _held_too_long(path, doing, timeout_s) from None
    try:
        yield
    finally:
        lock.release()


def _held_too_long(lock: Path, doing: str, timeout_s: float) -> LocalStackError:
    took = f"{timeout_s:.0f} s" if timeout_s < _MINUTE_S else f"{timeout_s / _MINUTE_S:.0f} minutes"
    return LocalStackError(
        f"Another lakegate has been {doing} for {took}.",
        hint="Find out what it's waiting for, or stop it; then try again.",
        folder=str(lock.parent),
    )


_POLL_S = 0.05


class Usage:
    """A shared lock that marks this object as a user of a project's servers. Threads may share it.

    Args:
        path: The lock's file: ``usage_path`` for Spark, ``stack_usage_path`` for both servers.
        doing: What an exclusive holder does, for messages.
    """

    def __init__(self, folder: StackFolder, path: Path, doing: str) -> None:
        self._folder = folder
        self._path = path
        self._doing = doing
        self._handle: int | None = None
        self._holding = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this object counts as a user."""
        return self._handle is not None

    def hold(self, timeout_s: float) -> None:
        """Count as a user from now on. Waits while another process holds the lock exclusively. Idempotent."""
        deadline = time.monotonic() + timeout_s
        with self._holding:  # two threads' handles would both hold the lock, and only one would be released
            if self._handle is not None:
                return
            handle = self._open()
            while not _try_lock(handle, fcntl.LOCK_SH):
                if time.monotonic() >= deadline:
                    os.close(handle)
                    raise _held_too_long(self._path, self._doing, timeout_s)
                time.sleep(_POLL_S)
            self._handle = handle
            os.utime(handle)

    def release(self) -> None:
        """Stop counting as a user. Idempotent."""
        if self._handle is not None:
            with suppress(OSError):
                os.utime(self._handle)  # records the last use
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether this object is the only user. If so, nobody else becomes one while the body runs."""
        handle = self._open() if self._handle is None else self._handle
        try:
            yield _try_lock(handle, fcntl.LOCK_EX)
        finally:
            if self._handle is None:
                os.close(handle)
            else:
                fcntl.flock(handle, fcntl.LOCK_SH)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._folder.unusable(error) from error


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
