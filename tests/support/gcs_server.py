"""A stand-in for Google Cloud Storage in tests: gcp-storage-emulator, and before it what that does not know.

The emulator takes no notice of ``ifGenerationMatch``; the proxy before it does, as Google describes it: another
generation than that, or with 0 any at all, is answered with 412.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import httpx

from support.loopback import loopback_client
from support.ports import free_port
from support.s3_proxy import Proxy
from support.waiting import wait_ready

_TIMEOUT_S = 180
_CONTENT_PART = b"\r\n--end\r\nContent-Type: application/octet-stream\r\n\r\n"
_PRECONDITION = b'{"error": {"code": 412, "message": "At least one of the pre-conditions you specified did not hold."}}'


class GcsServer:
    """One server; ``new_bucket`` gives each test a bucket of its own."""

    def __init__(self) -> None:
        self._port = free_port()
        self._emulator = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._client = loopback_client()
        self._buckets = itertools.count(1)
        self._proxy = Proxy(self._emulator)
        self._proxy.instead = self._precondition

    @property
    def endpoint(self) -> str:
        return self._proxy.endpoint

    def new_bucket(self) -> str:
        name = f"landing-{next(self._buckets)}"
        self._client.post(f"{self._emulator}/storage/v1/b", json={"name": name}).raise_for_status()
        return name

    def put(self, bucket: str, key: str, content: bytes) -> None:
        url = f"{self._emulator}/upload/storage/v1/b/{bucket}/o"
        about = json.dumps({"name": key}).encode()
        parts = (b"--end\r\nContent-Type: application/json\r\n\r\n", about, _CONTENT_PART, content, b"\r\n--end--")
        headers = {"Content-Type": 'multipart/related; boundary="end"'}
        self._client.post(f"{url}?uploadType=multipart", content=b"".join(parts), headers=headers).raise_for_status()

    def delete(self, bucket: str, key: str) -> None:
        self._client.delete(f"{self._emulator}/storage/v1/b/{bucket}/o/{quote(key, safe='')}").raise_for_status()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(Path(sys.executable).parent / "gcp-storage-emulator", "start", "--in-memory", "--quiet"),
                *("--host", "127.0.0.1", "--port", str(self._port)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_ready(self._process, self._is_ready, within_s=_TIMEOUT_S)
        self._proxy.__enter__()

    def remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._proxy.__exit__(None, None, None)
        self._client.close()

    def _is_ready(self) -> bool:
        try:
            return self._client.get(self._emulator, timeout=1).is_success
        except httpx.HTTPError:
            return False

    def _precondition(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        url = urlsplit(path)
        wanted = parse_qs(url.query).get("ifGenerationMatch")
        if wanted is None:
            return None
        bucket, _, name = url.path.partition("/b/")[2].partition("/o")
        key = unquote(name[1:]) if method == "GET" else _uploaded(body)
        found = self._client.get(f"{self._emulator}/storage/v1/b/{bucket}/o/{quote(key, safe='')}")
        now = found.json()["generation"] if found.is_success else "0"
        missing = method == "GET" and not found.is_success  # which the emulator says itself
        return None if missing or wanted == [now] else (412, _PRECONDITION)


def _uploaded(body: bytes) -> str:
    """Return the name in the first part, of JSON, of a multipart upload."""
    part = body.split(b"\r\n\r\n", 1)[1].split(b"\r\n--", 1)[0]
    name: str = json.loads(part)["name"]
    return name
