"""The embedded stack of one project: brought up, looked at, brought down.

Everything that starts or stops servers holds the stack's lock. Looking does not, so that the common case (all is well)
costs a few milliseconds.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from lakegate.config import LocalSettings
from lakegate.errors import LocalStackError
from lakegate.local import process
from lakegate.local.artifacts import prepare
from lakegate.local.servers import SERVERS, Server
from lakegate.local.startup import Startup
from lakegate.local.state import (
    SERVICE_NAMES,
    ServiceState,
    ServiceStatus,
    StackFolder,
    StackState,
    StateFile,
    Usage,
    locked,
)
from lakegate.local.stores import SparkStores, credentials_mark, store_artifacts
from lakegate.model.artifacts import ARTIFACTS, Artifact
from lakegate.ports import Narrator

_LOCK_MARGIN_S = 60.0
_UNRESPONSIVE_GRACE_S = 10.0
_POLL_S = 0.05
_STRAY_GRACE_S = 20.0
_IDLE = Path(__file__).with_name("idle.py")
"""Run as a file: lakegate/local/idle.py says why."""


class LocalStack:
    """Nessie and Spark Connect on this machine, for the project in one folder.

    Args:
        home: The project's folder; all state lives in its ``.lakegate/``.
        warehouse: Returns the object stores that Spark must reach for the tables' files; asked before it is started or
            used.
        idle_s: Seconds after which servers that nobody uses are stopped; 0 for never.
        drivers: Those that the settings name: a Spark that is started has no other any more.
    """

    def __init__(
        self,
        home: Path,
        settings: LocalSettings,
        narrator: Narrator,
        warehouse: Callable[[], SparkStores] = SparkStores,
        *,
        idle_s: float = 0.0,
        drivers: Collection[Artifact] = (),
    ) -> None:
        self._folder = StackFolder(home)
        self._settings = settings
        self._narrator = narrator
        self._warehouse = warehouse
        self._drivers = drivers
        self._usage = Usage(self._folder, self._folder.usage_path, "restarting the local Spark")
        self._stack_usage = Usage(self._folder, self._folder.stack_usage_path, "stopping the local stack")
        self._idle_s = idle_s

    def up(self, stores: SparkStores | None = None) -> StackState:
        """Start what is not running, and return when both servers answer.

        Idempotent; several callers at once start one stack. What this call started is ended again when it fails or is
        interrupted. A Spark that can't reach the requested stores is restarted, unless others use it.

        Args:
            stores: What Spark must be able to reach, and will from then on; ``None`` for nothing, so that one that runs
                is taken as it is.

        Raises:
            LocalStackError: When a server can't be started; names its log and its most telling line. Or when
                Spark had to be started anew and somebody uses it.
            ConfigurationError: When the configuration of the warehouse's store is wrong.
        """
        wanted = stores or SparkStores()
        self.keep()
        running = self._running(wanted)
        if running is not None:
            return running
        self._folder.create()
        self.keep()
        known = self._alive().stores.without_drivers_but(self._drivers)
        reached = known.having(self._warehouse()).having(wanted)
        jars = prepare(self._narrator, artifacts=(*ARTIFACTS, *store_artifacts(reached)))
        with self._locked():
            return self._running(wanted) or self._start(jars, reached, wanted)

    def keep(self) -> None:
        """Count as a user of the servers until :meth:`release`, so that they aren't stopped for being idle."""
        if not self._folder.path.is_dir():
            return
        with contextlib.suppress(LocalStackError):  # in a folder that can't be written, it's done without
            self._stack_usage.hold(self._settings.start_timeout_s + _LOCK_MARGIN_S)

    def use(self, stores: SparkStores | None = None) -> StackState:
        """Return what :meth:`up` does, with a Spark that reaches the warehouse, too.

        From now on nobody else starts Spark anew, until :meth:`release`.
        """
        wanted = self._warehouse().having(stores or SparkStores())
        state = self.up(wanted)
        if self._usage.is_held:
            return state
        self._usage.hold(self._settings.start_timeout_s + _LOCK_MARGIN_S)
        return self.up(wanted)  # it may have been another one a moment ago

    def switch(self, stores: SparkStores, *, in_transaction: bool) -> bool:
        """Use a Spark that reaches the stores asked for.

        Args:
            in_transaction: Whether this process has work in it that a new start would lose.

        Returns:
            Whether it is another one than before, which knows no session of ours.

        Raises:
            LocalStackError: As :meth:`up`.
        """
        before = self._alive().services.get("spark")
        if in_transaction and before is not None:
            if not before.stores.covers(stores):
                raise _in_use("a transaction of this program")
            return False
        return self.use(stores).spark.instance != (before.instance if before else None)

    def release(self) -> None:
        """Not use the servers any more. Idempotent."""
        self._usage.release()
        self._stack_usage.release()

    def down(self) -> tuple[str, ...]:
        """End the servers that were started for this project, Spark first, and no other process.

        Returns:
            Names of the servers that were running.

        Raises:
            LocalStackError: When one does not end.
        """
        if not self._folder.path.is_dir():  # somebody removed it under running servers
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
            # On a full or read-only disk the old file stays: it names servers that are gone, which does no harm.
            with contextlib.suppress(LocalStackError):
                self._folder.write(file)
        return tuple(stopped)

    def status(self) -> tuple[ServiceStatus, ...]:
        """Return what can be seen of each server. Starts, stops and writes nothing."""
        file = self._alive()
        return tuple(self._status(SERVERS[name], file.services.get(name)) for name in SERVICE_NAMES)

    def _running(self, wanted: SparkStores) -> StackState | None:
        services = self._alive().services
        if wanted and not ("spark" in services and _serves(services["spark"], wanted)):
            return None
        if all(name in services and SERVERS[name].answers(services[name].port) for name in SERVICE_NAMES):
            return StackState(home=str(self._folder.home), nessie=services["nessie"], spark=services["spark"])
        return None

    def _alive(self) -> StateFile:
        """Return the state file less the servers that are gone; an empty one when it is missing, broken or a copy's."""
        file = self._folder.read()
        if file is None or file.home != str(self._folder.home):
            return StateFile(home=str(self._folder.home))
        return file.without(
            *(name for name, one in file.services.items() if not process.is_instance(one.pid, one.instance))
        )

    def _start(self, jars: Mapping[Artifact, Path], reached: SparkStores, wanted: SparkStores) -> StackState:
        self._stop_moved()
        file = self._alive()
        self._stop_strays(file)
        for name in tuple(file.services):
            if not self._comes_round(file.services[name]):
                self._narrator.note(f"{SERVERS[name].title} does not answer and is started again.")
                file = self._stop(SERVERS[name], file)
        with contextlib.ExitStack() as restart:
            if wanted:
                file = self._make_way(file.model_copy(update={"stores": reached}), wanted, restart)
            if len(file.services) < len(SERVICE_NAMES):
                file = Startup(self._folder, self._settings, self._narrator, jars, reached).start(file)
                self._watch_idle()
        return StackState(home=str(self._folder.home), nessie=file.services["nessie"], spark=file.services["spark"])

    def _watch_idle(self) -> None:
        """Begin to watch for servers that nobody uses; a process that does so already goes on, with this limit."""
        with contextlib.suppress(OSError):
            self._folder.idle_path.write_text(str(self._idle_s), encoding="ascii")
        if self._idle_s > 0:
            command = (sys.executable, "-P", str(_IDLE), str(self._folder.home))
            log = self._folder.logs / "idle.log"
            process.spawn(command, env=process.environment({}), cwd=self._folder.path, log=log)

    def _make_way(self, file: StateFile, wanted: SparkStores, restart: contextlib.ExitStack) -> StateFile:
        """Stop a Spark that does not serve what is wanted; nobody begins to use it before ``restart`` is left."""
        service = file.services.get("spark")
        if service is None or _serves(service, wanted):
            return file
        if restart.enter_context(self._usage.alone()):
            return self._stop(SERVERS["spark"], file)
        if service.stores.covers(wanted):  # with other credentials, which may do as well
            return file
        raise _in_use("another lakegate")

    def _comes_round(self, service: ServiceState) -> bool:
        """Wait for a live server that may still be starting (its starter was killed) or is busy for a moment."""
        age_s = (datetime.now(UTC) - service.started_at).total_seconds()
        patience_s = max(self._settings.start_timeout_s - max(age_s, 0.0), _UNRESPONSIVE_GRACE_S)
        deadline = time.monotonic() + patience_s
        answers = SERVERS[service.name].answers
        if answers(service.port):
            return True
        with self._narrator.step(f"Waiting for {SERVERS[service.name].title}, which runs and does not answer"):
            while time.monotonic() < deadline and process.is_instance(service.pid, service.instance):
                if answers(service.port):
                    return True
                time.sleep(_POLL_S)
        return False

    def _stop(self, server: Server, file: StateFile) -> StateFile:
        service = file.services[server.name]
        with self._narrator.step(f"Stopping {server.title}"):
            process.stop([process.Target.instance(service.pid, service.instance)], grace_s=server.stop_grace_s)
        return file.without(server.name)

    def _stop_strays(self, file: StateFile) -> tuple[str, ...]:
        """End servers of this folder that the state file does not know: it was lost, or its writer was killed."""
        known = {service.pid for service in file.services.values()}
        strays = {pid: name for pid, name in process.find_marked(self._folder.home).items() if pid not in known}
        if strays:
            targets = [process.Target.marked(pid, self._folder.home) for pid in strays]
            process.stop(targets, grace_s=_STRAY_GRACE_S)
        return tuple(sorted(set(strays.values()), reverse=True))

    def _stop_moved(self) -> None:
        """End servers that were started before this folder was moved here: their paths lead nowhere now."""
        file = self._folder.read()
        if file is None or file.home == str(self._folder.home) or StackFolder(Path(file.home)).path.exists():
            return
        targets = [process.Target.instance(one.pid, one.instance) for one in file.services.values()]
        process.stop(targets, grace_s=_STRAY_GRACE_S)

    def _status(self, server: Server, service: ServiceState | None) -> ServiceStatus:
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


def _serves(service: ServiceState, wanted: SparkStores) -> bool:
    ours = credentials_mark(service.instance, service.stores)
    return service.stores.covers(wanted) and service.credentials_mark == ours


def _in_use(by: str) -> LocalStackError:
    return LocalStackError(
        f"The local Spark must be restarted to reach an object store or a database, but {by} is using it.",
        hint="Run the command again when that one has ended, or stop Spark and all its work: lakegate down",
        service="spark",
    )
