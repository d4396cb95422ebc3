"""Starting servers side by side, all or none."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lakegate.config import LocalSettings
from lakegate.errors import LocalStackError
from lakegate.local import archives, process, servers
from lakegate.local.servers import SERVERS, Launch, Server, temporary_folder
from lakegate.local.state import SERVICE_NAMES, ServiceName, ServiceState, StackFolder, StateFile
from lakegate.local.stores import SparkStores, credentials_mark
from lakegate.model.artifacts import Artifact
from lakegate.ports import Narrator, Step

_POLL_S = 0.05
_MAX_PORTS_TRIED = 3
_UNDO_GRACE_S = 5.0
_HEAP_REFUSED = re.compile(
    r"Could not reserve enough space|Invalid maximum heap size|Cannot allocate memory|OutOfMemory"
)


class Startup:
    """One start of whatever servers are not running. Its caller holds the stack's lock."""

    def __init__(
        self,
        folder: StackFolder,
        settings: LocalSettings,
        narrator: Narrator,
        jars: Mapping[Artifact, Path],
        stores: SparkStores,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._narrator = narrator
        self._jars = jars
        self._stores = stores
        self._children: dict[ServiceName, subprocess.Popen[bytes]] = {}
        self._ports_tried: dict[ServiceName, int] = {}
        self._archives: dict[ServiceName, archives.Archive] = {}

    def start(self, file: StateFile) -> StateFile:
        """Start the servers that ``file`` lacks, wait until they answer, and return the state with them.

        Args:
            file: State in which every server listed is alive and answers.

        Raises:
            LocalStackError: When one does not start. None that this call started is left then, nor after an interrupt.
        """
        missing = [SERVERS[name] for name in SERVICE_NAMES if name not in file.services]
        before = file
        titles = " and ".join(server.title for server in missing)
        try:
            with self._narrator.step(f"Starting {titles}") as step:
                for server in missing:
                    file = self._spawn(server, file)
                file = self._await(file, step)
        except BaseException as error:
            self._undo(before, error)
            raise
        self._make_archives()
        return file

    def _spawn(self, server: Server, file: StateFile) -> StateFile:
        scratch = temporary_folder(self._folder, server.name)
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._folder.unusable(error) from error
        port = self._choose_port(server, file)
        stores = self._stores if server.name == "spark" else SparkStores()
        launch = Launch(
            folder=self._folder,
            settings=self._settings,
            jars=self._jars,
            stores=stores,
            instance=secrets.token_hex(16),
            port=port,
            management_port=process.free_port({port, *file.ports.values()}),
            token=secrets.token_urlsafe(32),
        )
        launch = self._with_archive(server, launch)
        started_at = datetime.now(UTC)
        child = process.spawn(
            server.command(launch),
            env=process.environment(server.variables(launch)),
            cwd=self._folder.path,
            log=self._folder.log(server.name),
        )
        self._children[server.name] = child
        self._ports_tried[server.name] = self._ports_tried.get(server.name, 0) + 1
        file = file.with_service(
            ServiceState(
                name=server.name,
                pid=child.pid,
                create_time=process.create_time(child.pid),
                instance=launch.instance,
                port=launch.port,
                token=launch.token if server.has_token else None,
                log=str(self._folder.log(server.name)),
                started_at=started_at,
                version=server.version(),
                stores=stores,
                credentials_mark=credentials_mark(launch.instance, stores),
            )
        )
        # Before it answers, so that the next process knows of it if we're killed here.
        self._folder.write(file)
        return file

    def _with_archive(self, server: Server, launch: Launch) -> Launch:
        archive = archives.find(server.name, server.classes(self._jars))
        if archive is None:
            return launch
        self._archives[server.name] = archive
        class_list = self._class_list(server.name).relative_to(self._folder.path)
        return replace(launch, class_options=archive.options(class_list))

    def _make_archives(self) -> None:
        jobs = (archive.job(self._class_list(name)) for name, archive in self._archives.items())
        archives.make_later([job for job in jobs if job is not None])

    def _class_list(self, name: ServiceName) -> Path:
        return temporary_folder(self._folder, name) / "loaded.classes"

    def _choose_port(self, server: Server, file: StateFile) -> int:
        remembered = file.ports.get(server.name)
        known = None if server.name in self._ports_tried else remembered
        return process.choose_port(known, server.title, self._narrator, set(file.ports.values()))

    def _await(self, file: StateFile, step: Step) -> StateFile:
        deadline = time.monotonic() + self._settings.start_timeout_s
        waiting = dict(self._children)
        while waiting:
            for name, child in tuple(waiting.items()):
                service = file.services[name]
                if child.poll() is not None:
                    file = self._try_other_port(SERVERS[name], file, child)
                    waiting[name] = self._children[name]
                elif SERVERS[name].answers(service.port) and process.listens(child.pid, service.port):
                    del waiting[name]
                    step.progress(len(self._children) - len(waiting), len(self._children), "servers")
            if waiting and time.monotonic() > deadline:
                raise self._too_slow(file.services[next(iter(waiting))])
            if waiting:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    next(iter(waiting.values())).wait(_POLL_S)
        return file

    def _try_other_port(self, server: Server, file: StateFile, dead: subprocess.Popen[bytes]) -> StateFile:
        log = self._folder.log(server.name)
        if not servers.failed_to_bind(log) or self._ports_tried[server.name] >= _MAX_PORTS_TRIED:
            raise self._died(file.services[server.name], dead.returncode)
        return self._spawn(server, file.without(server.name))

    def _undo(self, before: StateFile, error: BaseException) -> None:
        """End whatever runs for this folder and did not before, even a process we had no time to take note of."""
        known = {service.pid for service in before.services.values()}
        strays = [pid for pid in process.find_marked(self._folder.home) if pid not in known]
        try:
            process.stop([process.Target.marked(pid, self._folder.home) for pid in strays], grace_s=_UNDO_GRACE_S)
            self._folder.write(before)
        except LocalStackError as second:
            error.add_note(second.message)

    def _died(self, service: ServiceState, code: int) -> LocalStackError:
        line = self._last_words(service)
        hint = f"Read the log {service.log}, then try again: lakegate up"
        if line is not None and _HEAP_REFUSED.search(line):
            hint = f"Give it a heap that fits this machine: set local.{service.name}_memory in lakegate.toml."
        end = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return LocalStackError(
            f"{SERVERS[service.name].title} did not start: it {end}. {self._quote(line, service)}",
            hint=hint,
            service=service.name,
            log=service.log,
        )

    def _too_slow(self, service: ServiceState) -> LocalStackError:
        return LocalStackError(
            f"{SERVERS[service.name].title} did not answer within {self._settings.start_timeout_s:g} s of its start. "
            f"{self._quote(self._last_words(service), service)}",
            hint="On a slow or busy machine set local.start_timeout_s higher (LAKEGATE_LOCAL_START_TIMEOUT_S); else "
            f"read the log {service.log}.",
            service=service.name,
            log=service.log,
        )

    @staticmethod
    def _last_words(service: ServiceState) -> str | None:
        line = servers.telling_line(Path(service.log))
        return line.replace(service.token, "***") if line and service.token else line

    @staticmethod
    def _quote(line: str | None, service: ServiceState) -> str:
        return f"Its log ({service.log}) " + (f'says: "{line}"' if line else "is empty.")
