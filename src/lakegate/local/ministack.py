"""AWS on this machine, for the demo: MiniStack serves S3, SQS, Lambda and CloudFormation on loopback.

It checks no credentials, so those in requests to it aren't secrets. When it's stopped, its folder keeps everything;
when it's killed, only the objects in S3.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from lakegate.errors import LocalStackError, missing_package
from lakegate.local import process, servers
from lakegate.local.artifacts import cache_folder, unusable_cache, work_folder
from lakegate.local.state import StackFolder, locked
from lakegate.model.base import Value
from lakegate.ports import Narrator, Step
from lakegate.progress import redact

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "lakegate", "any-will-do"
_NAME = "ministack"
_START_TIMEOUT_S = 60.0
_LOCK_TIMEOUT_S = 180.0
_STOP_GRACE_S = 15.0
_POLL_S = 0.05
_MAX_PORTS_TRIED = 3
_LOOPBACK = "127.0.0.1,localhost"


class _State(Value):
    """The process that was started, whose port is preferred at the next start."""

    pid: int
    instance: str
    port: int


class MiniStack:
    """MiniStack for the project in one folder.

    Args:
        home: The project's folder; all state is in its ``.lakegate/ministack/``.
        cache: The folder where MiniStack is installed; by default the user's cache folder.
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
        """Path of its log, which includes the functions' output."""
        return self._stack.logs / f"{_NAME}.log"

    @property
    def endpoint(self) -> str | None:
        """Its URL; ``None`` if it isn't running."""
        port = self._running()
        return None if port is None else _endpoint(port)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that make AWS's tools and libraries use only MiniStack, without the user's profiles."""
        endpoint = self.endpoint
        if endpoint is None:
            raise LocalStackError("MiniStack isn't running.", hint="Start it: lakegate demo --aws")
        return {**variables(endpoint), **_without_proxy()}

    def start(self) -> str:
        """Start MiniStack unless it's running, and return its URL once it answers. Installs it the first time.

        Raises:
            LocalStackError: If it can't be installed or started; the message quotes the log's most relevant line.
        """
        running = self._running()
        if running is not None:
            return _endpoint(running)
        python = prepare_ministack(self._narrator, cache=self._cache)
        self._create()
        with self._locked():
            running = self._running()
            if running is None:
                self._stop()  # one that hangs, or workers that outlived their MiniStack
                running = self._start(python)
        return _endpoint(running)

    def stop(self) -> bool:
        """Stop MiniStack and the functions it runs. Objects are kept.

        Returns:
            Whether it was running.
        """
        if not self._folder.is_dir():
            return self._stop()
        with self._locked():
            return self._stop()

    def _running(self) -> int | None:
        """Return its port if it's running and answers."""
        state = self._state()
        if state is None or not process.is_instance(state.pid, state.instance):
            return None
        return state.port if servers.ministack_answers(state.port) else None

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
            f"MiniStack couldn't get a port: {_MAX_PORTS_TRIED} free ones were taken before it could bind them.",
            hint="Try again.",
        )

    def _choose_port(self, *, first: bool) -> int:
        state = self._state() if first else None
        return process.choose_port(state.port if state else None, "MiniStack", self._narrator, grace_s=3.0)

    def _spawn(self, python: Path, port: int) -> subprocess.Popen[bytes]:
        self._tmp.mkdir(mode=0o700, exist_ok=True)
        instance = secrets.token_hex(16)
        # Python keeps and ignores unknown -X options. These identify the process.
        words = [word for mark in process.marker_options(self._folder, _NAME, instance) for word in ("-X", mark)]
        child = process.spawn(
            [str(python), "-P", *words, "-m", _NAME],
            env=process.environment(self._variables(port)),
            cwd=self._folder,
            log=self.log,
        )
        # Write it before the server answers, so that the next process finds the server if this one is killed.
        self._write_state(_State(pid=child.pid, instance=instance, port=port))
        return child

    def _variables(self, port: int) -> dict[str, str]:
        return {
            **_without_proxy(),
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
            "DOCKER_HOST": f"unix://{self._folder / 'no-docker'}",  # otherwise it looks for containers to clean up
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            # Functions inherit these, as they inherit AWS_ENDPOINT_URL from MiniStack itself.
            "LAKEGATE_S3_ENDPOINT": _endpoint(port),
            "LAKEGATE_S3_REGION": REGION,
            "LAKEGATE_S3_PATH_STYLE": "true",
        }

    def _await(self, child: subprocess.Popen[bytes], port: int) -> bool:
        """Wait until it answers; return ``False`` if another process took its port first."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if child.poll() is not None:
                if not process.is_free(port):
                    return False
                raise self._failed(f"it ended with exit code {child.returncode}")
            if servers.ministack_answers(port) and process.listens(child.pid, port):
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_POLL_S)
        raise self._failed(f"it didn't answer within {_START_TIMEOUT_S:g} s")

    def _failed(self, what: str) -> LocalStackError:
        line = servers.most_relevant_line(self.log)
        quote = f'says: "{line}"' if line else "is empty."
        return LocalStackError(
            f"MiniStack didn't start: {what}. Its log ({self.log}) {quote}",
            hint=f"Read the log {self.log}, then try again.",
            log=str(self.log),
        )

    def _stop(self) -> bool:
        stopped = process.stop_marked(self._folder, grace_s=_STOP_GRACE_S)
        # A function's process ends with its MiniStack, unless it's busy.
        process.stop(process.find_below(self._tmp), grace_s=_STOP_GRACE_S)
        shutil.rmtree(self._tmp, ignore_errors=True)
        return bool(stopped)

    def _create(self) -> None:
        self._stack.create()
        try:
            for folder in (self._folder, self._folder / "s3"):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._stack.unusable(error) from error

    def _state(self) -> _State | None:
        try:
            return _State.model_validate_json(self._state_path.read_bytes())
        except (OSError, ValidationError):
            return None

    def _write_state(self, state: _State) -> None:
        try:
            draft = self._state_path.with_suffix(".draft")
            draft.write_text(state.model_dump_json(), encoding="utf-8")
            draft.replace(self._state_path)
        except OSError as error:
            raise self._stack.unusable(error) from error

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        doing = f"starting or stopping MiniStack in {self._folder}"
        return locked(self._folder / "lock", doing, self._narrator, timeout_s=_LOCK_TIMEOUT_S)


def variables(endpoint: str) -> dict[str, str]:
    """Return variables that make AWS's tools and libraries use ``endpoint`` and nothing else.

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
    """Make this process use MiniStack instead of the user's AWS account while the body runs."""
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


def _without_proxy() -> dict[str, str]:
    """Return variables that exclude this machine from proxying, in addition to the hosts in the environment."""
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    value = f"{listed},{_LOOPBACK}" if listed else _LOOPBACK
    return {"NO_PROXY": value, "no_proxy": value}


LOCK = Path(__file__).with_name("ministack.lock")
VERSION = "1.5.33"
_DOWNLOAD_MIB = 28
_DISK_BYTES = 160 * 2**20
_INSTALL_TIMEOUT_S = 1800.0
_INSTALL_POLL_S = 0.2
_MAX_REASON = 300
_UV_SETTINGS = ("UV_", "XDG_", "NETRC", "ALL_PROXY", "all_proxy")
_PINNED = re.compile(r"^[\w.-]+==", re.MULTILINE)
# Reasons in uv's output, the most specific first.
_REASONS = (
    re.compile(r"No space left on device"),
    re.compile(r"certificate verify failed[^\n]*|invalid peer certificate[^\n]*"),
    re.compile(r"Temporary failure in name resolution|Name or service not known|nodename nor servname[^\n]*"),
    re.compile(r"Caused by: [^\n]*(?:dns error|connect|timed out|refused)[^\n]*"),
    re.compile(r"(?:HASHES DO NOT MATCH|Hash mismatch)[^\n]*", re.IGNORECASE),
    re.compile(r"^(?:ERROR|error|Error): [^\n]+", re.MULTILINE),
)


def prepare_ministack(narrator: Narrator, *, cache: Path | None = None) -> Path:
    """Install MiniStack if needed. Needs the network only the first time.

    Safe to call from several processes at once: one installs, the others wait for it.

    Args:
        narrator: Shows the installation's progress in packages.
        cache: The folder to install into; by default :func:`~lakegate.local.artifacts.cache_folder`.

    Returns:
        The Python of MiniStack's environment.

    Raises:
        ConfigurationError: If uv isn't installed.
        LocalStackError: If the cache isn't writable, or packages can't be fetched or don't match the lock file.
    """
    folder = (cache or cache_folder()) / "ministack"
    place = folder / _key()
    if _python(place).exists():
        return _python(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "install.lock", "installing MiniStack", narrator, timeout_s=_INSTALL_TIMEOUT_S):
            if not _python(place).exists():
                _make(place, folder, narrator)
    except OSError as error:
        raise unusable_cache(folder, error) from error
    return _python(place)


def _key() -> str:
    """Return the name of the environment for this lock file and this Python."""
    text = f"{sys.version}\0{sys.base_prefix}\0".encode() + LOCK.read_bytes()
    return f"{VERSION}-{sys.implementation.cache_tag}-{hashlib.sha256(text).hexdigest()[:12]}"


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def _make(place: Path, folder: Path, narrator: Narrator) -> None:
    with work_folder(folder, "making-", _DISK_BYTES) as work:
        with narrator.step(f"Installing MiniStack {VERSION} ({_DOWNLOAD_MIB} MiB, once)") as step:
            for command in _commands(work / "venv"):
                _run(command, work, folder / "install.log", step)
        shutil.rmtree(place, ignore_errors=True)  # its Python may be gone
        (work / "venv").replace(place)


def _commands(venv: Path) -> tuple[tuple[str, ...], ...]:
    try:
        from uv import find_uv_bin
    except ImportError as error:
        raise missing_package("Installing MiniStack needs", "uv", "aws") from error
    uv, python = find_uv_bin(), str(_python(venv))
    wanted = ("--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))  # wheels only, so nothing runs on install
    return (
        (uv, "venv", "--no-project", "--python", sys.executable, str(venv)),
        (uv, "pip", "install", "--no-progress", "--python", python, *wanted),
    )


def _run(command: Sequence[str], work: Path, log: Path, step: Step) -> None:
    settings = {key: value for key, value in os.environ.items() if key.startswith(_UV_SETTINGS)}
    env = process.environment({**settings, "TMPDIR": str(work)})
    if process.run_logged(command, env=env, cwd=work, log=log, wait=lambda child: _watch(child, work, step)) != 0:
        raise _failed(log)


def _watch(installer: subprocess.Popen[bytes], work: Path, step: Step) -> None:
    total = len(_PINNED.findall(LOCK.read_text(encoding="utf-8")))
    deadline = time.monotonic() + _INSTALL_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            installer.wait(_INSTALL_POLL_S)
            return
        done = sum(1 for _ in work.glob("venv/lib/python*/site-packages/*.dist-info"))
        step.progress(min(done, total), total, "packages")


def _failed(log: Path) -> LocalStackError:
    reason = redact(process.first_match(log, _REASONS) or "the installer doesn't say why").strip()[:_MAX_REASON]
    hint = "The first demo needs the network. Check it and try again; behind a proxy, set HTTPS_PROXY."
    if "certificate" in reason:
        hint = "Set SSL_CERT_FILE to a bundle with your proxy's certificate, and try again."
    return LocalStackError(
        f"Couldn't install MiniStack {VERSION}: {reason.rstrip('.')}. Log: {log}", hint=hint, log=str(log)
    )
