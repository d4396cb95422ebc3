"""A real Nessie, set up as a test wants it: such as one that lets nobody in without a token."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from lakegate.local import artifacts
from lakegate.local.archives import archive_options
from lakegate.local.artifacts import java
from lakegate.local.process import environment
from lakegate.model.artifacts import NESSIE
from lakegate.progress import SilentNarrator
from support.loopback import loopback_client
from support.ports import free_port
from support.waiting import wait_ready

_TIMEOUT_S = 300


@contextmanager
def secured_nessie(folder: Path, issuer: str, properties: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run one that trusts ``issuer``, and yield the address of its API; see :func:`nessie`."""
    given = {
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.server.authentication.enabled": "true",
        "quarkus.oidc.auth-server-url": issuer,
        "quarkus.oidc.client-id": "nessie",
    }
    with nessie(folder, {**given, **(properties or {})}) as uri:
        yield uri


@contextmanager
def nessie(
    folder: Path,
    properties: Mapping[str, str] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Iterator[str]:
    """Run one on the loopback interface until the body ends, and yield the address of its API.

    Args:
        folder: Where its log goes.
        properties: What it is set to.
        variables: Its environment, besides what every program needs.
        port: Where it listens. Default: a free one.
    """
    jar = artifacts.prepare(SilentNarrator(), artifacts=[NESSIE])[NESSIE]
    port = free_port() if port is None else port
    given: Mapping[str, object] = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(avoid=port),
        "quarkus.otel.sdk.disabled": "true",
        **(properties or {}),
    }
    log_file = folder / "nessie.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [
                *(str(java()), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
                *(f"-D{name}={value}" for name, value in given.items()),
                *archive_options("nessie"),
                *("-jar", str(jar)),
            ],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment({"TMPDIR": str(folder), **(variables or {})}),
        )
        try:
            wait_ready(process, lambda: _is_ready(port), within_s=_TIMEOUT_S, log=log_file)
            yield f"http://127.0.0.1:{port}/api/v2"
        finally:
            process.terminate()
            process.wait()


def _is_ready(port: int) -> bool:
    with loopback_client(timeout_s=5) as client, suppress(httpx.HTTPError):
        client.get(f"http://127.0.0.1:{port}/api/v2/config")
        return True
    return False
