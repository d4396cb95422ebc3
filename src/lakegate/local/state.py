"""What is running, as values, and the file that remembers it.

The file is ``.lakegate/stack.json`` (mode 0600: it holds the token). Ports outlive their servers in it, so that
addresses stay the same over a ``down`` and ``up``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from lakegate.config import HOME_NAME
from lakegate.errors import LocalStackError
from lakegate.local.stores import SparkStores
from lakegate.model.base import Value
from lakegate.ports import Narrator

ServiceName = Literal["nessie", "spark"]
SERVICE_NAMES: tuple[ServiceName, ...] = ("nessie", "spark")

_STATE_NAME = "stack.json"
_SERVER_NEEDS_BYTES = 256 * 2**20


class ServiceState(Value):
    """One server as it was started.

    Attributes:
        name: ``nessie`` or ``spark``.
        create_time: When the process began, seconds since the epoch, by the operating system's clock.
        instance: Random text on the process's command line; no other process has it, even if the pid was reused.
        token: Bearer token that clients must show (``spark`` only). Not in ``repr``.
        stores: Object stores that it reaches (``spark`` only).
        credentials_mark: A mark of the credentials that it got for that, which doesn't reveal them.
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


class StackState(Value):
    """Both servers, up and answering. ``home`` is the project's folder."""

    home: str
    nessie: ServiceState
    spark: ServiceState

    @property
    def nessie_uri(self) -> str:
        """Nessie's API v2."""
        return f"http://127.0.0.1:{self.nessie.port}/api/v2"

    @property
    def spark_url(self) -> str:
        """Spark Connect address with its token: a secret, not to be shown.

        The host is spelled ``localhost`` since PySpark sends a token without TLS to no other.
        """
        return f"sc://localhost:{self.spark.port}/;token={self.spark.token}"

    @property
    def warehouse(self) -> str:
        """Root of the tables' files.

        Not percent-encoded: neither Hadoop nor PyArrow decodes paths, so ``%20`` would become part of a folder's name.
        """
        return f"file://{Path(self.home) / HOME_NAME / 'warehouse'}"


class ServiceStatus(Value):
    """What can be seen of one server without touching it.

    ``state``: ``running`` answers; ``unresponsive`` is alive and doesn't answer (it may be starting); ``stopped``
    isn't there.
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
    """The content of the state file: servers that were started, and the ports to prefer when they are started again.

    ``home`` distinguishes a project's folder from its copy: a copy must not use the servers of the original. ``stores``
    are those that Spark was once asked to reach: from then on it is started so.
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
        """Return a copy in which the named servers aren't running; their ports stay remembered."""
        return self.model_copy(update={"services": {k: v for k, v in self.services.items() if k not in names}})


class StackFolder:
    """The folder ``.lakegate/`` of one project, as far as the stack uses it."""

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

    def create(self) -> None:
        """Create what is missing, private to this user.

        Raises:
            LocalStackError: When the folder can't be written, or the disk is nearly full.
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
                f"The disk of {self.path} has only {free // 2**20} MiB left; the local stack needs at least "
                f"{_SERVER_NEEDS_BYTES // 2**20} MiB to start.",
                hint="Free some space there, or run lakegate in a folder on another disk.",
                folder=str(self.path),
            )

    def read(self) -> StateFile | None:
        """Return the remembered state; ``None`` when there is none, or none that can be understood."""
        try:
            return StateFile.model_validate_json(self.state_path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        except OSError as error:
            raise self.unusable(error) from error

    def write(self, state: StateFile) -> None:
        """Replace the state file in one step."""
        draft = self.state_path.with_name(f"{_STATE_NAME}.{os.getpid()}-{secrets.token_hex(4)}")
        text = json.dumps(state.model_dump(mode="json"), indent=2)
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123 - mode at creation
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.state_path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise self.unusable(error) from error

    def unusable(self, error: OSError) -> LocalStackError:
        """Return the error for one of our folders or files that the operating system refuses."""
        return LocalStackError(
            f"The local stack can't use {error.filename or self.path}: {error.strerror or error}.",
            hint=f"Make {self.path} a folder that you may write to, with free space, or run lakegate elsewhere.",
            folder=str(self.path),
        )


_MINUTE_S = 60


@contextlib.contextmanager
def locked(path: Path, doing: str, narrator: Narrator, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock at ``path`` while the body runs. The operating system lets go of it when a process ends.

    Args:
        path: The lock's file; made if it is missing, readable by this user alone.
        doing: What its holders are doing, for messages: ``starting or stopping MiniStack``.
        narrator: Receives a note if another process has to be waited for.
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
        took = f"{timeout_s:.0f} s" if timeout_s < _MINUTE_S else f"{timeout_s / _MINUTE_S:.0f} minutes"
        raise LocalStackError(
            f"Another lakegate has been {doing} for {took}.",
            hint="See what it waits for, or end it, and try again.",
            folder=str(path.parent),
        ) from None
    try:
        yield
    finally:
        lock.release()


_POLL_S = 0.05


class Usage:
    """This object's part in the use of a project's servers.

    Args:
        path: What all users hold: ``usage_path`` for Spark, ``stack_usage_path`` for all servers.
        doing: What its only holder is doing, for messages.
    """

    def __init__(self, folder: StackFolder, path: Path, doing: str) -> None:
        self._folder = folder
        self._path = path
        self._doing = doing
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object counts as a user."""
        return self._handle is not None

    def hold(self, timeout_s: float) -> None:
        """Count as a user from now on, waiting for a process that is restarting Spark. Idempotent."""
        if self._handle is not None:
            return
        handle = self._open()
        deadline = time.monotonic() + timeout_s
        while not _try(handle, fcntl.LOCK_SH):
            if time.monotonic() >= deadline:
                os.close(handle)
                raise LocalStackError(
                    f"Another lakegate has been {self._doing} for {timeout_s:.0f} s.",
                    hint="See what it waits for, or end it, and try again.",
                )
            time.sleep(_POLL_S)
        self._handle = handle
        os.utime(handle)

    def release(self) -> None:
        """Not count as a user any more. Idempotent."""
        if self._handle is not None:
            with suppress(OSError):
                os.utime(self._handle)  # when they were last used
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Prevent new users while the body runs; yield whether this object is the only one."""
        handle = self._open() if self._handle is None else self._handle
        try:
            yield _try(handle, fcntl.LOCK_EX)
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


def _try(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
