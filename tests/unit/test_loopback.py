"""Servers on this machine are reached directly, whatever proxy the environment names."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import grpc
import pytest

from lakegate.alerts.message import compose
from lakegate.alerts.slack import SlackSender
from lakegate.catalogs.nessie.client import NessieClient
from lakegate.config import AdlsSettings, GcsSettings, NotifySettings, S3Settings
from lakegate.spark.channels import SparkChannels
from lakegate.storage.adls import adls_client
from lakegate.storage.gcs import gcs_client
from lakegate.storage.s3 import s3_client
from support.notify_support import rejection

VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _dead_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name in VARIABLES:
        monkeypatch.setenv(name, dead)
        monkeypatch.setenv(name.upper(), dead)
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY"):
        monkeypatch.setenv(name, "c2VjcmV0")


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server that refuses everything, and the paths that were requested."""
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_POST = refuse

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()


def head_on_s3(address: str) -> None:
    s3_client(S3Settings(endpoint=address, region="us-east-1")).head_object(Bucket="b", Key="k")


def look_on_gcs(address: str) -> None:
    gcs_client(GcsSettings(endpoint=address)).bucket("b").get_blob("k")


def look_on_azure(address: str) -> None:
    client = adls_client("acme.dfs.core.windows.net", AdlsSettings(endpoint=address))
    client.get_blob_client("c", "k").get_blob_properties()


def ask_nessie(address: str) -> None:
    NessieClient(f"{address}/api/v2").configuration()


def send_to_webhook(address: str) -> None:
    SlackSender(address).send(compose(rejection(), NotifySettings()), 5.0)


@pytest.mark.parametrize("ask", [head_on_s3, look_on_gcs, look_on_azure, ask_nessie, send_to_webhook])
def test_http(ask: Callable[[str], None], server: tuple[str, list[str]]) -> None:
    address, asked = server
    with suppress(Exception):  # it refuses everything
        ask(address)
    assert asked
    assert all(path.startswith("/") for path in asked)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_spark(host: str) -> None:
    serving = grpc.server(ThreadPoolExecutor(max_workers=1))
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    try:
        with SparkChannels(f"sc://{host}:{port}").toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=120)
    finally:
        serving.stop(None)
