"""The embedded stack of one project: up, down and status.

Starting and stopping servers takes the stack's lock. Checking them doesn't, so the common case (everything runs) costs
only a few milliseconds.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lakegate.config import LocalSettings
from lakegate.errors import LocalStackError
from lakegate.local import process, servers
from lakegate.local.archives import forget_archive
from lakegate.local.artifacts import prepare
from lakegate.local.servers import SERVERS, Launch, LocalServer
from lakegate.local.state import (
    SERVICE_NAMES,
    ServiceName,
    ServiceState,
    ServiceStatus,
    StackFolder,
    StackState,
    StateFile,
    Usage,
    locked,
)
from lakegate.local.stores import SparkStores, credentials_mark, store_artifacts
from lakegate.model.artifacts import ARTIFACTS, NESSIE, Artifact
from lakegate.ports import Narrator, Step

_MAX_PORTS_TRIED = 3
_UNDO_GRACE_S = 5.0
_HEAP_REFUSED = re.compile(
    r"Could not reserve enough space|Invalid maximum heap size|Cannot allocate memory|OutOfMemory"
)


@dataclass
class Startup:
    """Starts the servers that aren't running. The caller holds the stack's lock."""

    folder: StackFolder
    settings: LocalSettings
    narrator: Narrator
    jars: Mapping[Artifact, Path]
    stores: SparkStores
    children: dict[ServiceName, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports_tried: dict[ServiceName, int] = field(default_factory=dict)
    started_at: float = field(default_factory=time.time)

    def start(self, file: StateFile, names: Sequence[ServiceName]) -> StateFile:
        """Start the servers of these names that ``file`` lacks, wait until they answer, and return the new state.

        Args:
            file: The current state. Every server in it is alive and answers.

        Raises:
            LocalStackError: If one doesn't start. As after an interrupt, those that this call started are stopped.
        """
        missing = [SERVERS[name] for name in names if name not in file.services]
        before = file
        titles = " and ".join(server.title for server in missing)
        try:
            with self.narrator.step(f"Starting {titles}") as step:
                for server in missing:
                    file = self._spawn(server, file)
                file = self._await(file, step)
        except BaseException as error:
            self._roll_back(before, error)
            raise
        return file

    def _spawn(self, server: LocalServer, file: StateFile) -> StateFile:
        scratch = self.folder.scratch(server.name)
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self.folder.unusable(error) from error
        port = self._choose_port(server, file)
        stores = self.stores if server.name == "spark" else SparkStores()
        launch = Launch(
            folder=self.folder,
            settings=self.settings,
            jars=self.jars,
            stores=stores,
            instance=secrets.token_hex(16),
            port=port,
            management_port=process.free_port({port, *file.ports.values()}),
            token=secrets.token_urlsafe(32),
        )
        started_at = datetime.now(UTC)
        child = process.spawn(
            server.command(launch),
            env=process.environment(server.variables(launch)),
            cwd=self.folder.path,
            log=self.folder.log(server.name),
        )
        self.children[server.name] = child
        self.ports_tried[server.name] = self.ports_tried.get(server.name, 0) + 1
        file = file.with_service(
            ServiceState(
                name=server.name,
                pid=child.pid,
                create_time=process.create_time(child.pid),
                instance=launch.instance,
                port=launch.port,
                token=launch.token if server.has_token else None,
                log=str(self.folder.log(server.name)),
                started_at=started_at,
                version=server.version(),
                stores=stores,
                credentials_mark=credentials_mark(launch.instance, stores),
            )
        )
        # Write it before the server answers, so that the next process finds the server if this one is killed.
        self.folder.write(file)
        return file

    def _choose_port(self, server: LocalServer, file: StateFile) -> int:
        remembered = file.ports.get(server.name)
        known = None if server.name in self.ports_tried else remembered
        return process.choose_port(known, server.title, self.narrator, set(file.ports.values()))

    def _await(self, file: StateFile, step: Step) -> StateFile:
        deadline = time.monotonic() + self.settings.start_timeout_s
        waiting = dict(self.children)
        while waiting:
            for name, child in tuple(waiting.items()):
                service = file.services[name]
                if child.poll() is not None:
                    file = self._try_other_port(SERVERS[name], file, child)
                    waiting[name] = self.children[name]
                elif SERVERS[name].answers(service.port) and process.listens(child.pid, service.port):
                    del waiting[name]
                    step.progress(len(self.children) - len(waiting), len(self.children), "servers")
            if waiting and time.monotonic() > deadline:
                raise self._start_timed_out(file.services[next(iter(waiting))])
            if waiting:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    next(iter(waiting.values())).wait(_POLL_S)
        return file

    def _try_other_port(self, server: LocalServer, file: StateFile, dead: subprocess.Popen[bytes]) -> StateFile:
        forget_archive(server.name, since=self.started_at)
        log = self.folder.log(server.name)
        if not servers.failed_to_bind(log) or self.ports_tried[server.name] >= _MAX_PORTS_TRIED:
            raise self._died(file.services[server.name], dead.returncode)
        return self._spawn(server, file.without(server.name))

    def _roll_back(self, before: StateFile, error: BaseException) -> None:
        """Stop every process of this folder that wasn't running before, even one that isn't in the state file yet."""
        known = {service.pid for service in before.services.values()}
        try:
            process.stop_marked(self.folder.home, spared=known, grace_s=_UNDO_GRACE_S)
            for name in self.children:
                forget_archive(name, since=self.started_at)
            self.folder.write(before)
        except LocalStackError as second:
            error.add_note(second.message)

    def _died(self, service: ServiceState, code: int) -> LocalStackError:
        line = self._log_line(service)
        hint = f"Read the log {service.log}, then try again: lakegate up"
        if line is not None and _HEAP_REFUSED.search(line):
            hint = f"Give it a heap that fits this machine: set local.{service.name}_memory in lakegate.toml."
        end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return LocalStackError(
            f"{SERVERS[service.name].title} didn't start: it {end}. {self._quote(line, service)}",
            hint=hint,
            service=service.name,
            log=service.log,
        )

    def _start_timed_out(self, service: ServiceState) -> LocalStackError:
        return LocalStackError(
            f"{SERVERS[service.name].title} didn't answer within {self.settings.start_timeout_s:g} s of starting. "
            f"{self._quote(self._log_line(service), service)}",
            hint="On a slow or busy machine, raise local.start_timeout_s (LAKEGATE_LOCAL_START_TIMEOUT_S). Otherwise "
            f"read the log {service.log}.",
            service=service.name,
            log=service.log,
        )

    @staticmethod
    def _log_line(service: ServiceState) -> str | None:
        line = servers.most_relevant_line(Path(service.log))
        return line.replace(service.token, "***") if line and service.token else line

    @staticmethod
    def _quote(line: str | None, service: ServiceState) -> str:
        return f"Its log ({service.log}) " + (f'says: "{line}"' if line else "is empty.")


def needed_artifacts(names: Sequence[ServiceName]) -> Sequence[Artifact]:
    """Return the jars that servers of these names need, besides those for object stores."""
    return [artifact for artifact in ARTIFACTS if artifact != NESSIE or "nessie" in names]


_LOCK_MARGIN_S = 60.0
_UNRESPONSIVE_GRACE_S = 10.0
_POLL_S = 0.05
_STRAY_GRACE_S = 20.0
_IDLE = Path(__file__).with_name("idle.py")
"""The program that stops idle servers. It's run as a file; its docstring explains why."""


class LocalStack:
    """The servers on this machine, for the project in one folder: Spark Connect, and Nessie if it's the catalog.

    Args:
        home: The project's folder; all state is in its ``.lakegate/``.
        warehouse: Returns the object stores with the tables' files, which Spark must reach. Called before Spark is
            started or used.
        idle_s: Seconds after which unused servers are stopped; 0 for never.
        names: The servers that the project needs.
    """

    def __init__(
        self,
        home: Path,
        settings: LocalSettings,
        narrator: Narrator,
        warehouse: Callable[[], SparkStores] = SparkStores,
        *,
        idle_s: float = 0.0,
        names: Sequence[ServiceName] = SERVICE_NAMES,
    ) -> None:
        self._folder = StackFolder(home)
        self._settings = settings
        self._narrator = narrator
        self._warehouse = warehouse
        self._usage = Usage(self._folder, self._folder.usage_path, "restarting the local Spark")
        self._stack_usage = Usage(self._folder, self._folder.stack_usage_path, "stopping the local stack")
        self._idle_s = idle_s
        self._names = names

    def up(self, stores: SparkStores | None = None) -> StackState:
        """Start the servers that aren't running, and return when all answer.

        Idempotent; concurrent callers start only one stack. If this call fails or is interrupted, the servers that it
        started are stopped. A Spark that can't reach the requested stores is restarted, unless others use it.

        Args:
            stores: The stores that Spark must reach, now and after later restarts; ``None`` accepts a running Spark as
                it is.

        Raises:
            LocalStackError: If a server can't be started; the message quotes the most relevant line of its log. Or if
                Spark must be restarted while others use it.
            ConfigurationError: If the configuration of the warehouse's store is wrong.
        """
        services = self._up(stores or SparkStores(), self._names)
        return StackState(home=str(self._folder.home), services={name: services[name] for name in self._names})

    def _up(self, wanted: SparkStores, names: Sequence[ServiceName]) -> Mapping[ServiceName, ServiceState]:
        self.keep()
        running = self._running(wanted, names)
        if running is not None:
            return running
        self._folder.create()
        self.keep()
        reached = self._alive().stores.merged(self._warehouse()).merged(wanted)
        jars = prepare(self._narrator, artifacts=(*needed_artifacts(names), *store_artifacts(reached)))
        with self._locked():
            return self._running(wanted, names) or self._start(jars, reached, wanted, names)

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """The jars that it needs, besides those for object stores."""
        return needed_artifacts(self._names)

    def has_catalog(self) -> bool:
        """Return whether Nessie has ever run here, so that there may be tables."""
        return self._folder.nessie_store.is_dir() and any(self._folder.nessie_store.iterdir())

    def keep(self) -> None:
        """Count as a user of the servers until :meth:`release`, so that they aren't stopped as idle."""
        if not self._folder.path.is_dir():
            return
        with contextlib.suppress(LocalStackError):  # the folder may be read-only
            self._stack_usage.hold(self._settings.start_timeout_s + _LOCK_MARGIN_S)

    def use(self, stores: SparkStores | None = None, *, alone: bool = False) -> ServiceState:
        """Start the servers like :meth:`up`, with a Spark that also reaches the warehouse, and return Spark.

        Until :meth:`release`, no other process restarts Spark.

        Args:
            alone: Whether Spark does without Nessie, because it only reads files.
        """
        wanted = self._warehouse().merged(stores or SparkStores())
        names: Sequence[ServiceName] = ("spark",) if alone else self._names
        spark = self._up(wanted, names)["spark"]
        if self._usage.is_held:
            return spark
        self._usage.hold(self._settings.start_timeout_s + _LOCK_MARGIN_S)
        return self._up(wanted, names)["spark"]  # another process may have restarted it before we held it

    def switch(self, stores: SparkStores, *, in_transaction: bool) -> bool:
        """Use a Spark that reaches the requested stores.

        Args:
            in_transaction: Whether this process has work in Spark that a restart would lose.

        Returns:
            Whether Spark was restarted, so that our sessions are gone.
        """
        before = self._alive().services.get("spark")
        if in_transaction and before is not None:
            if not before.stores.covers(stores):
                raise _in_use("a transaction of this program")
            return False
        return self.use(stores).instance != (before.instance if before else None)

    def release(self) -> None:
        """Stop counting as a user of the servers. Idempotent."""
        self._usage.release()
        self._stack_usage.release()

    def down(self) -> tuple[str, ...]:
        """Stop this project's servers, Spark first, and no other process.

        Returns:
            Names of the servers that were running.
        """
        if not self._folder.path.is_dir():  # someone deleted it while servers were running
            return self._stop_strays(StateFile(home=str(self._folder.home)))
        with self._locked():
            file = self._alive()
            stopped: list[str] = []
            for name in reversed(SERVICE_NAMES):
                if name in file.services:
                    file = self._stop(SERVERS[name], file)
                    stopped.append(name)
            stopped += [name for name in self._stop_strays(file) if name not in stopped]
            shutil.rmtree(self._folder.tmp, ignore_errors=True)
            # On a full or read-only disk, the old file stays. That it names stopped servers does no harm.
            with contextlib.suppress(LocalStackError):
                self._folder.write(file)
        return tuple(stopped)

    def status(self) -> tuple[ServiceStatus, ...]:
        """Return each server's status. Starts, stops and writes nothing."""
        file = self._alive()
        names = (name for name in SERVICE_NAMES if name in self._names or name in file.services)
        return tuple(self._status(SERVERS[name], file.services.get(name)) for name in names)

    def _running(self, wanted: SparkStores, names: Sequence[ServiceName]) -> Mapping[ServiceName, ServiceState] | None:
        services = self._alive().services
        if wanted and not ("spark" in services and _serves_stores(services["spark"], wanted)):
            return None
        is_up = all(name in services and SERVERS[name].answers(services[name].port) for name in names)
        return services if is_up else None

    def _alive(self) -> StateFile:
        """Return the state without dead servers; an empty one if the file is missing, broken or another folder's."""
        file = self._folder.read()
        if file is None or file.home != str(self._folder.home):
            return StateFile(home=str(self._folder.home))
        return file.without(
            *(name for name, one in file.services.items() if not process.is_instance(one.pid, one.instance))
        )

    def _start(
        self,
        jars: Mapping[Artifact, Path],
        reached: SparkStores,
        wanted: SparkStores,
        names: Sequence[ServiceName],
    ) -> Mapping[ServiceName, ServiceState]:
        self._stop_moved()
        file = self._alive()
        self._stop_strays(file)
        for name in tuple(file.services):
            if not self._wait_until_responsive(file.services[name]):
                self._narrator.note(f"{SERVERS[name].title} doesn't answer; restarting it.")
                file = self._stop(SERVERS[name], file)
        with contextlib.ExitStack() as restart:
            if wanted:
                file = self._stop_unless_serving(file.model_copy(update={"stores": reached}), wanted, restart)
            if any(name not in file.services for name in names):
                file = Startup(self._folder, self._settings, self._narrator, jars, reached).start(file, names)
                self._watch_idle()
        return file.services

    def _watch_idle(self) -> None:
        """Start the process that stops idle servers. One that already runs continues with the new limit."""
        with contextlib.suppress(OSError):
            self._folder.idle_path.write_text(str(self._idle_s), encoding="ascii")
        if self._idle_s > 0:
            command = (sys.executable, "-P", str(_IDLE), str(self._folder.home))
            log = self._folder.logs / "idle.log"
            process.spawn(command, env=process.environment({}), cwd=self._folder.path, log=log)

    def _stop_unless_serving(self, file: StateFile, wanted: SparkStores, restart: contextlib.ExitStack) -> StateFile:
        """Stop a Spark that doesn't serve ``wanted``. Nobody can start using it until ``restart`` is closed."""
        service = file.services.get("spark")
        if service is None or _serves_stores(service, wanted):
            return file
        if restart.enter_context(self._usage.alone()):
            return self._stop(SERVERS["spark"], file)
        if service.stores.covers(wanted):  # it has other credentials, which may work too
            return file
        raise _in_use("another lakegate")

    def _wait_until_responsive(self, service: ServiceState) -> bool:
        """Wait for a live server that may still be starting (whoever started it was killed) or is briefly busy."""
        age_s = (datetime.now(UTC) - service.started_at).total_seconds()
        left_s = self._settings.start_timeout_s - max(age_s, 0.0)
        deadline = time.monotonic() + max(left_s, _UNRESPONSIVE_GRACE_S)
        answers = SERVERS[service.name].answers
        if answers(service.port):
            return True
        with self._narrator.step(f"Waiting for {SERVERS[service.name].title}, which is running but doesn't answer"):
            while time.monotonic() < deadline and process.is_instance(service.pid, service.instance):
                if answers(service.port):
                    return True
                time.sleep(_POLL_S)
        return False

    def _stop(self, server: LocalServer, file: StateFile) -> StateFile:
        service = file.services[server.name]
        with self._narrator.step(f"Stopping {server.title}"):
            process.stop([process.StopTarget.instance(service.pid, service.instance)], grace_s=server.stop_grace_s)
        return file.without(server.name)

    def _stop_strays(self, file: StateFile) -> tuple[str, ...]:
        """Stop this folder's servers that aren't in the state file: it was lost, or its writer was killed."""
        known = {service.pid for service in file.services.values()}
        stopped = process.stop_marked(self._folder.home, spared=known, grace_s=_STRAY_GRACE_S)
        return tuple(sorted(stopped, reverse=True))

    def _stop_moved(self) -> None:
        """Stop servers that were started before this folder was moved here: their paths no longer exist."""
        file = self._folder.read()
        if file is None or file.home == str(self._folder.home) or StackFolder(Path(file.home)).path.exists():
            return
        targets = [process.StopTarget.instance(one.pid, one.instance) for one in file.services.values()]
        process.stop(targets, grace_s=_STRAY_GRACE_S)

    def _status(self, server: LocalServer, service: ServiceState | None) -> ServiceStatus:
        log = str(self._folder.log(server.name))
        if service is None:
            return ServiceStatus(name=server.name, state="stopped", log=log)
        return ServiceStatus(
            name=server.name,
            state="running" if server.answers(service.port) else "unresponsive",
            pid=service.pid,
            port=service.port,
            uptime_s=max(0.0, time.time() - service.create_time),
            memory_bytes=process.memory_bytes(service.pid),
            log=service.log,
            address=server.address(service.port),
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        doing = f"starting or stopping the local stack of {self._folder.home}"
        timeout_s = self._settings.start_timeout_s + _LOCK_MARGIN_S
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(self._folder.lock_path, doing, self._narrator, timeout_s=timeout_s))
            except OSError as error:
                raise self._folder.unusable(error) from error
            yield


def _serves_stores(service: ServiceState, wanted: SparkStores) -> bool:
    ours = credentials_mark(service.instance, service.stores)
    return service.stores.covers(wanted) and service.credentials_mark == ours


def _in_use(by: str) -> LocalStackError:
    return LocalStackError(
        f"The local Spark must be restarted to reach an object store, but {by} is using it.",
        hint="Retry when that has ended, or stop Spark and all its work: lakegate down",
        service="spark",
    )
