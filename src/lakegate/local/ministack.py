"""AWS on this machine, as far as the demo needs it: MiniStack serves S3, SQS, Lambda and CloudFormation on loopback.

It checks no credentials, so those it is asked with are no secrets. What is in it is kept in its folder over a stop;
when it is killed, it keeps no more than the objects of S3.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from lakegate.errors import LocalStackError
from lakegate.local import health, process
from lakegate.local.locking import locked
from lakegate.local.ministack_parts import prepare_ministack
from lakegate.local.state import StackFolder
from lakegate.protocols import Narrator

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "lakegate", "any-will-do"
_NAME = "ministack"
_START_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 180.0
_STOP_GRACE_S = 15.0
_PORT_GRACE_S = 3.0
_POLL_S = 0.05
_MAX_PORTS_TRIED = 3
_HERE = "127.0.0.1,localhost"


class MiniStack:
    """MiniStack for the project in one folder.

    Args:
        home: The project's folder; all state lives in its ``.lakegate/ministack/``.
        narrator: Told what takes long.
        cache: Where MiniStack is installed; default the user's cache folder.
    """

    def __init__(self, home: Path, narrator: Narrator, *, cache: Path | None = None) -> None:
        self._stack = StackFolder(home)
        self._folder = self._stack.path / _NAME
        self._tmp = self._folder / "tmp"
        self._state_path = self._folder / "state.json"
        self._narrator = narrator
        self._cache = cache

    @property
    def log(self) -> Path:
        """Its log, in which the functions' output is too."""
        return self._stack.logs / f"{_NAME}.log"

    @property
    def endpoint(self) -> str | None:
        """Where it serves; ``None`` while it does not run."""
        port = self._running()
        return None if port is None else _endpoint(port)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which AWS's tools and libraries use it, and nothing else: no profile, no file of the user's.

        Raises:
            LocalStackError: When it does not run.
        """
        endpoint = self.endpoint
        if endpoint is None:
            raise LocalStackError("MiniStack does not run.", hint="lakegate demo --aws")
        return {**variables(endpoint), **_without_proxy(os.environ)}

    def start(self) -> str:
        """Start it if it does not run, and return its endpoint when it answers. The first time, install it.

        Raises:
            LocalStackError: When it cannot be installed or started; names its log and the line in it that tells most.
        """
        running = self._running()
        if running is not None:
            return _endpoint(running)
        python = prepare_ministack(self._narrator, cache=self._cache)
        self._create()
        with self._locked():
            running = self._running()
            if running is None:
                self._stop()  # one that hangs, or workers that outlived theirs
                running = self._start(python)
        return _endpoint(running)

    def stop(self) -> bool:
        """Stop it and the functions it runs. Objects stay.

        Returns:
            Whether it was running.

        Raises:
            LocalStackError: When a process does not end.
        """
        if not self._folder.is_dir():
            return self._stop()
        with self._locked():
            return self._stop()

    def _running(self) -> int | None:
        """Return its port when it runs and answers."""
        state = self._state()
        pid, instance, port = state.get("pid"), state.get("instance"), state.get("port")
        if not (isinstance(pid, int) and isinstance(instance, str) and isinstance(port, int)):
            return None
        return port if process.is_instance(pid, instance) and health.ministack_answers(port) else None

    def _start(self, python: Path) -> int:
        with self._narrator.step("Starting MiniStack"):
            try:
                for attempt in range(_MAX_PORTS_TRIED):
                    port = self._choose_port(first=attempt == 0)
                    child = self._spawn(python, port)
                    if self._await(child, port):
                        return port
            except BaseException:
                self._stop()
                raise
        raise LocalStackError(
            f"MiniStack found no port: {_MAX_PORTS_TRIED} that were free a moment ago were taken when it wanted them.",
            hint="Try again.",
        )

    def _choose_port(self, *, first: bool) -> int:
        remembered = self._state().get("port")
        if first and isinstance(remembered, int):
            # One that was killed a moment ago may still be letting go of it.
            deadline = time.monotonic() + _PORT_GRACE_S
            while not (free := process.is_free(remembered)) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if free:
                return remembered
            self._narrator.note(f"Port {remembered} of MiniStack is taken by another process; choosing another.")
        return process.free_port()

    def _spawn(self, python: Path, port: int) -> subprocess.Popen[bytes]:
        self._tmp.mkdir(mode=0o700, exist_ok=True)
        instance = secrets.token_hex(16)
        # Options that Python does not know are kept and ignored; by these the process is recognised.
        words = [word for mark in process.marks(self._folder, _NAME, instance) for word in ("-X", mark)]
        child = process.spawn(
            [str(python), "-P", *words, "-m", _NAME],
            env=process.environment(self._variables(port)),
            cwd=self._folder,
            log=self.log,
        )
        # Before it answers, so that whoever comes after a kill right here knows of it.
        self._write_state({"pid": child.pid, "instance": instance, "port": port})
        return child

    def _variables(self, port: int) -> dict[str, str]:
        return {
            **_without_proxy(os.environ),
            "HOME": str(self._folder),  # functions inherit it, and must not find the user's AWS profile
            "TMPDIR": str(self._tmp),
            "PYTHONUNBUFFERED": "1",
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "MINISTACK_REGION": REGION,
            "LAMBDA_EXECUTOR": "local",
            "PERSIST_STATE": "1",
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(self._folder / "s3"),
            "STATE_DIR": str(self._folder / "state"),
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": f"unix://{self._folder / 'no-docker'}",  # else it looks for containers to clean up
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            # Functions inherit these, as they inherit AWS_ENDPOINT_URL from MiniStack itself.
            "LAKEGATE_S3_ENDPOINT": _endpoint(port),
            "LAKEGATE_S3_REGION": REGION,
            "LAKEGATE_S3_PATH_STYLE": "true",
        }

    def _await(self, child: subprocess.Popen[bytes], port: int) -> bool:
        """Wait until it answers; return ``False`` when another process was quicker to take its port."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if child.poll() is not None:
                if not process.is_free(port):
                    return False
                raise self._failed(f"it ended with exit code {child.returncode}")
            if health.ministack_answers(port) and process.listens(child.pid, port):
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_POLL_S)
        raise self._failed(f"it did not answer within {_START_TIMEOUT_S:g} s")

    def _failed(self, what: str) -> LocalStackError:
        line = health.telling_line(self.log)
        said = f'says: "{line}"' if line else "is empty."
        return LocalStackError(
            f"MiniStack did not start: {what}. Its log ({self.log}) {said}",
            hint=f"Read the log {self.log}, then try again.",
            log=str(self.log),
        )

    def _stop(self) -> bool:
        servers = process.find_marked(self._folder)
        process.stop([process.Target.marked(pid, self._folder) for pid in servers], grace_s=_STOP_GRACE_S)
        # A function's process ends with its MiniStack, unless it is busy.
        process.stop(process.find_below(self._tmp), grace_s=_STOP_GRACE_S)
        shutil.rmtree(self._tmp, ignore_errors=True)
        return bool(servers)

    def _create(self) -> None:
        self._stack.create()
        try:
            for folder in (self._folder, self._folder / "s3"):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._stack.unusable(error) from error

    def _state(self) -> dict[str, object]:
        try:
            state = json.loads(self._state_path.read_bytes())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _write_state(self, state: Mapping[str, object]) -> None:
        try:
            draft = self._state_path.with_suffix(".draft")
            draft.write_text(json.dumps(state), encoding="utf-8")
            draft.replace(self._state_path)
        except OSError as error:
            raise self._stack.unusable(error) from error

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        doing = f"starting or stopping MiniStack in {self._folder}"
        return locked(self._folder / "lock", doing, self._narrator, timeout_s=_LOCK_TIMEOUT_S)


def variables(endpoint: str) -> dict[str, str]:
    """Return the variables that lead AWS's tools and libraries to ``endpoint``, and by no way elsewhere.

    Example:
        >>> variables("http://127.0.0.1:4566")["AWS_ENDPOINT_URL"]
        'http://127.0.0.1:4566'
    """
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Let this process use MiniStack, and no account of the user's, while the body runs.

    Args:
        values: :attr:`MiniStack.environment`.
    """
    before = dict(os.environ)
    try:
        for name in tuple(os.environ):
            if name.startswith("AWS_"):
                del os.environ[name]
        os.environ.update(values)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _endpoint(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _without_proxy(source: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine from going to a proxy."""
    listed = source.get("no_proxy") or source.get("NO_PROXY") or ""
    value = f"{listed},{_HERE}" if listed else _HERE
    return {"NO_PROXY": value, "no_proxy": value}
