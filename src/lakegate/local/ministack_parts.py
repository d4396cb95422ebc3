"""MiniStack's own virtual environment: made once from a lock file, kept in the user's cache for all projects.

It is not a dependency of lakegate: it pins a version of botocore, and only ``lakegate demo --aws`` wants it. The
environment stands for the Python that lakegate runs on, since MiniStack runs Lambda functions on its own Python.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lakegate.errors import ConfigurationError, LocalStackError
from lakegate.local.artifacts import cache_folder
from lakegate.local.locking import locked
from lakegate.local.process import environment
from lakegate.narration import redact
from lakegate.protocols import Narrator, Step

LOCK = Path(__file__).with_name("ministack.lock")
VERSION = "1.5.33"
_DOWNLOAD_MIB = 28
_DISK_BYTES = 160 * 2**20
_LOCK_TIMEOUT_S = 1800.0
_INSTALL_TIMEOUT_S = 1800.0
_POLL_S = 0.2
_MAX_REASON = 300
_SETTINGS_OF_UV = ("UV_", "XDG_", "NETRC", "ALL_PROXY", "all_proxy")
_PINNED = re.compile(r"^[\w.-]+==", re.MULTILINE)
# What uv says, the most telling first.
_REASONS = (
    re.compile(r"No space left on device"),
    re.compile(r"certificate verify failed[^\n]*|invalid peer certificate[^\n]*"),
    re.compile(r"Temporary failure in name resolution|Name or service not known|nodename nor servname[^\n]*"),
    re.compile(r"Caused by: [^\n]*(?:dns error|connect|timed out|refused)[^\n]*"),
    re.compile(r"(?:HASHES DO NOT MATCH|Hash mismatch)[^\n]*", re.IGNORECASE),
    re.compile(r"^(?:ERROR|error|Error): [^\n]+", re.MULTILINE),
)


def prepare_ministack(narrator: Narrator, *, cache: Path | None = None) -> Path:
    """Make sure that MiniStack is installed. Needs the network only the first time.

    Safe to call from several processes at once: one installs, the others wait for it.

    Args:
        narrator: Told of the installation, with packages done.
        cache: Folder to keep it in; default :func:`~lakegate.local.artifacts.cache_folder`.

    Returns:
        The Python of MiniStack's environment.

    Raises:
        ConfigurationError: When uv is not installed.
        LocalStackError: When the cache cannot be written, or the packages cannot be fetched or are not the locked ones.
    """
    folder = (cache or cache_folder()) / "ministack"
    place = folder / _key()
    if _python(place).exists():
        return _python(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "install.lock", "installing MiniStack", narrator, timeout_s=_LOCK_TIMEOUT_S):
            if not _python(place).exists():
                _make(place, folder, narrator)
    except OSError as error:
        raise LocalStackError(
            f"The cache {folder} cannot be used: {error.strerror or error}.",
            hint="Make it a folder that you may write to, or point XDG_CACHE_HOME at one.",
            folder=str(folder),
        ) from error
    return _python(place)


def _key() -> str:
    """Return what tells the environment of one lock file and one Python from others."""
    text = f"{sys.version}\0{sys.base_prefix}\0".encode() + LOCK.read_bytes()
    return f"{VERSION}-{sys.implementation.cache_tag}-{hashlib.sha256(text).hexdigest()[:12]}"


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def _make(place: Path, folder: Path, narrator: Narrator) -> None:
    for leftover in folder.glob("making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < _DISK_BYTES:
        raise LocalStackError(
            f"The disk of {folder} has only {free // 2**20} MiB left; MiniStack needs {_DISK_BYTES // 2**20} MiB.",
            hint="Free some space there, or point XDG_CACHE_HOME at another disk.",
            folder=str(folder),
        )
    work = Path(tempfile.mkdtemp(prefix="making-", dir=folder))
    try:
        with narrator.step(f"Installing MiniStack {VERSION} ({_DOWNLOAD_MIB} MiB, once)") as step:
            for command in _commands(work / "venv"):
                _run(command, work, folder / "install.log", step)
        shutil.rmtree(place, ignore_errors=True)  # of a Python that is gone
        (work / "venv").replace(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _commands(venv: Path) -> tuple[tuple[str, ...], ...]:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "Installing MiniStack needs the package uv, which is not installed.",
            hint="pip install 'lakegate[aws]'",
            extra="aws",
        ) from error
    uv, python = find_uv_bin(), str(_python(venv))
    wanted = ("--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))  # nothing is built, so no code is run
    return (
        (uv, "venv", "--no-project", "--python", sys.executable, str(venv)),
        (uv, "pip", "install", "--no-progress", "--python", python, *wanted),
    )


def _run(command: Sequence[str], work: Path, log: Path, step: Step) -> None:
    settings = {key: value for key, value in os.environ.items() if key.startswith(_SETTINGS_OF_UV)}
    with log.open("wb") as output:
        installer = subprocess.Popen(  # noqa: S603 - our own command line, no shell
            command,
            cwd=work,
            env=environment({**settings, "TMPDIR": str(work)}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(installer, work, step)
        finally:
            installer.kill()
            installer.wait()
    if installer.returncode != 0:
        raise _failed(log)


def _watch(installer: subprocess.Popen[bytes], work: Path, step: Step) -> None:
    total = len(_PINNED.findall(LOCK.read_text(encoding="utf-8")))
    deadline = time.monotonic() + _INSTALL_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            installer.wait(_POLL_S)
            return
        done = sum(1 for _ in work.glob("venv/lib/python*/site-packages/*.dist-info"))
        step.progress(min(done, total), total, "packages")


def _failed(log: Path) -> LocalStackError:
    text = log.read_text(encoding="utf-8", errors="replace")
    found = next(filter(None, (pattern.search(text) for pattern in _REASONS)), None)
    reason = redact(found.group(0)).strip()[:_MAX_REASON] if found else "the installer does not say why"
    hint = "The first demo needs the network once; check it and try again. Behind a proxy set HTTPS_PROXY."
    if "certificate" in reason:
        hint = "Point SSL_CERT_FILE at a bundle with your proxy's certificate, and try again."
    return LocalStackError(
        f"MiniStack {VERSION} could not be installed: {reason.rstrip('.')}. Log: {log}", hint=hint, log=str(log)
    )
