"""A real Prefect server with a database of its own, on loopback, and the adapter's commands against it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import httpx

from support import warm
from support.loopback import loopback_client
from support.ports import free_port
from support.waiting import wait_until

PROGRAM = (sys.executable, "-m", warm.PREFECT)
START_S = 180
ENDS_S = 240
IMPATIENT = {"PREFECT_CLIENT_MAX_RETRIES": "1"}
"""For a process whose server goes away. None else must have it: a busy server answers 503, and means 'ask again'."""
_TAIL = 6000
_MIGRATED = Path(__file__).parents[2] / ".pytest_cache" / f"prefect-{version('prefect')}.db"
"""The first server's new database: making one runs a hundred migrations, six seconds of a processor."""

_Found = TypeVar("_Found")


def fill(database: Path) -> None:
    """Make a new server's database, if some server has made one before."""
    if _MIGRATED.exists():
        database.write_bytes(_MIGRATED.read_bytes())


def keep(database: Path) -> None:
    """Keep a new server's database for those to come, unless there is one."""
    if not _MIGRATED.exists():
        _MIGRATED.parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(database)) as connection:
            draft = _MIGRATED.with_suffix(f".{os.getpid()}")
            draft.write_bytes(connection.serialize())
            draft.replace(_MIGRATED)


class PrefectServer:
    """One server process; ``folder`` holds its database and log.

    Args:
        brief: Whether it is one of a program's own, as of Prefect's test harness: without pages and some services.
    """

    def __init__(self, folder: Path, *, brief: bool = False) -> None:
        self.folder = folder
        self._brief = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT_SERVER_UI_ENABLED": "false"} if brief else {}
        self._process: subprocess.Popen[bytes] | None = None
        self._client = loopback_client()
        self._port = free_port()

    @property
    def url(self) -> str:
        """Address of the server, of its pages."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def variables(self) -> Mapping[str, str]:
        """What a process needs to talk to it."""
        return {
            "PREFECT_HOME": str(self.folder),
            "PREFECT_API_URL": f"{self.url}/api",
            "PREFECT_SERVER_UI_API_URL": f"{self.url}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            # What waits by the clock does not wait for long.
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",
            "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "1",
            "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
            "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        }

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        database = self.folder / "prefect.db"
        is_new = not database.exists()
        if is_new:
            fill(database)
        command = (sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self._port))
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **self.variables, **self._brief},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, within_s=START_S, poll_s=0.2, what="Prefect's server")
        if is_new:
            keep(database)

    def kill(self) -> None:
        """End it at once, as a machine that goes away does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Return the variables of a process that works for the project in ``home``."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("LAKEGATE_", "PREFECT_"))}
        return {**kept, **self.variables, **more}

    def run(self, home: Path, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the adapter to its end, warm."""
        return subprocess.run(
            self._words(warm.words(warm.PREFECT), home, words),
            env=self.environment(home, **more),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )

    def begin(self, home: Path, *words: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start a command of the adapter; its output goes to ``begun.log`` in the server's folder.

        Cold if it serves: then it starts processes of its own.
        """
        with (self.folder / "begun.log").open("ab") as log:
            return subprocess.Popen(
                self._words(PROGRAM if "serve" in words else warm.words(warm.PREFECT), home, words),
                env=self.environment(home, **more),
                cwd=home,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def wait_until(self, find: Callable[[], _Found | None], *, what: str, poll_s: float = 1) -> _Found:
        """Return what ``find`` finds, as :func:`wait_until`; if nothing comes, say what is known of the reasons."""
        try:
            return wait_until(find, within_s=ENDS_S, poll_s=poll_s, what=what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self._story()}") from None

    def post(self, path: str, body: Any = None) -> Any:
        """Ask the server's API, again while it is too busy to answer."""

        answer = self._ask("POST", path, json={} if body is None else body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def flow_run(self, flow_run_id: str) -> Any:
        """Return a flow run."""
        return self.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [flow_run_id]}}})[0]

    def task_states(self, flow_run_id: str) -> dict[str, str]:
        """Return the state that each task of a flow run is in."""
        found = self.post("task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run_id]}}})
        return {one["name"].rpartition("-")[0]: one["state_name"] for one in found}

    def artifacts(self, flow_run_id: str) -> dict[str, Any]:
        """Return a flow run's artifacts by their keys."""
        found = self.post("artifacts/filter", {"flow_runs": {"id": {"any_": [flow_run_id]}}})
        return {one["key"]: one["data"] for one in found}

    def deployment(self, name: str) -> Any | None:
        """Return a deployment by ``flow/name``; ``None`` when there is none."""
        answer = self._ask("GET", f"deployments/name/{name}")
        return answer.json() if answer.is_success else None

    def _ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Return the server's answer, once it isn't too busy for one."""

        def ask() -> httpx.Response | None:
            answer = httpx.request(method, f"{self.url}/api/{path}", timeout=60, **given)
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        return wait_until(ask, within_s=ENDS_S, poll_s=0.2, what=f"an answer from {path}")

    def _story(self) -> str:
        """Return what the server knows of its flow runs, automations and events, and how the logs end."""
        runs = (
            f"{run['created']} {run['name']} {run['parameters']}: {run['state_name']}, {run['state']}"
            for run in self.post("flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 30})
        )
        automations = (f"{one['name']}: enabled {one['enabled']}" for one in self.post("automations/filter"))
        names = {"event": {"prefix": ["lakegate.", "prefect.automation."]}}
        events = (
            f"{one['received']} {one['event']} {one['payload']}"
            for one in self.post("events/filter", {"filter": names, "limit": 30})["events"]
        )
        logs = (f"{name}:\n{(self.folder / name).read_text('utf-8')[-_TAIL:]}" for name in ("begun.log", "server.log"))
        return "\n".join(("flow runs:", *runs, "automations:", *automations, "events:", *events, *logs))

    def _words(self, program: Sequence[str], home: Path, words: Sequence[str | Path]) -> list[str]:
        # The project's folder is an option of each command.
        return [*program, *map(str, words), *(() if "announce" in words else ("--home", str(home)))]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "server.log").read_text(encoding="utf-8")[-2000:]
        try:
            return httpx.get(f"{self.url}/api/health", timeout=2).is_success
        except httpx.HTTPError:
            return False
