"""A stand-in for Azure Data Lake Storage in tests: Azurite, Microsoft's own, from npm."""

from __future__ import annotations

import fcntl
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx
import platformdirs

from support.loopback import loopback_client
from support.ports import free_port
from support.waiting import wait_ready

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, the same everywhere."""
_PACKAGE = "azurite@3.35.0"
_TIMEOUT_S = 180
_INSTALL_TIMEOUT_S = 400


class UnavailableError(Exception):
    """Azurite cannot be had here."""


class AdlsServer:
    """One server; ``new_container`` gives each test a container of its own."""

    def __init__(self) -> None:
        from azure.storage.blob import BlobServiceClient

        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._containers = itertools.count(1)
        self._client = BlobServiceClient(
            f"{self.endpoint}/{ACCOUNT}", credential={"account_name": ACCOUNT, "account_key": KEY}
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def new_container(self) -> str:
        name = f"landing-{next(self._containers)}"
        self._client.create_container(name)
        return name

    def put(self, container: str, key: str, content: bytes, metadata: dict[str, str] | None = None) -> None:
        self._client.get_blob_client(container, key).upload_blob(content, overwrite=True, metadata=metadata)

    def delete(self, container: str, key: str) -> None:
        self._client.get_blob_client(container, key).delete_blob()

    def start(self) -> None:
        """Install it when it isn't there yet, and start it.

        Raises:
            UnavailableError: When it can't be installed.
        """
        self._process = subprocess.Popen(
            [
                *(_program(), "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"),
                *("--blobHost", "127.0.0.1", "--blobPort", str(self._port)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_ready(self._process, self._is_ready, within_s=_TIMEOUT_S)

    def remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        with loopback_client(timeout_s=1) as client:
            try:
                client.get(self.endpoint)
            except httpx.HTTPError:
                return False
        return True


def _program() -> Path:
    found = shutil.which("azurite-blob")
    if found:
        return Path(found)
    folder = Path(platformdirs.user_cache_dir("lakegate-tests")) / _PACKAGE
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    npm = shutil.which("npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        # Two processes of the tests that install it at once leave half of it; so does one that is killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if npm is None:
                raise UnavailableError("Azurite comes by npm, which is not installed")
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                command = [npm, "install", "--prefix", made, "--no-audit", "--no-fund", "--ignore-scripts", _PACKAGE]
                try:
                    subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S)
                except subprocess.SubprocessError as error:
                    raise UnavailableError(f"npm cannot install {_PACKAGE}") from error
                Path(made).rename(folder)
                Path(made).mkdir()  # what is to be removed
    return program
