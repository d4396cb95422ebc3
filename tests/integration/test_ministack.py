"""MiniStack, the real one: started, found again, killed, stopped with the functions it runs."""

from __future__ import annotations

import io
import os
import signal
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest

from lakegate.local import process
from lakegate.local.ministack import MiniStack
from lakegate.progress import SilentNarrator
from support.ministack import ministack
from support.waiting import wait_until

_TIMEOUT_S = 60
# Says where it is, and is busy then, as one that Spark keeps waiting.
_FUNCTION = """
import json, os, time
def handler(event, context):
    print(json.dumps({k: v for k, v in os.environ.items() if k.startswith(("AWS_", "LAKEGATE_", "HOME"))}))
    time.sleep(event.get("busy_s", 0))
    return os.getpid()
"""

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ministack")]


@pytest.fixture(scope="module")
def server() -> Iterator[MiniStack]:
    with ministack() as running:
        yield running


def client(server: MiniStack, service: str) -> Any:
    env = server.environment
    make: Any = boto3.client  # which has an overload per service
    return make(
        service,
        endpoint_url=env["AWS_ENDPOINT_URL"],
        region_name=env["AWS_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )


def make_function(server: MiniStack) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("app.py", _FUNCTION)
    client(server, "lambda").create_function(
        FunctionName="f",
        Runtime="python3.12",
        Role="arn:aws:iam::000000000000:role/f",
        Handler="app.handler",
        Code={"ZipFile": packed.getvalue()},
        Timeout=120,
    )


def pid_of(home: Path) -> int:
    (pid,) = process.find_marked(home / ".lakegate" / "ministack")
    return pid


def until_gone(pid: int) -> None:
    def is_gone() -> bool:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return True

    wait_until(is_gone, within_s=_TIMEOUT_S, what=f"the end of {pid}")


def test_it_is_started_once_and_listens_on_this_machine_only(server: MiniStack) -> None:
    endpoint = server.endpoint
    assert endpoint is not None
    assert server.start() == endpoint
    port = int(endpoint.rpartition(":")[2])
    sockets = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    listening = {one.laddr[0] for one in sockets if one.laddr and one.laddr[1] == port}
    assert listening == {"127.0.0.1"}


def test_a_function_finds_its_own_cloud_and_nothing_of_the_users(
    server: MiniStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_function(server)
    answer = client(server, "lambda").invoke(FunctionName="f", Payload=b"{}", LogType="Tail")
    assert answer["StatusCode"] == 200
    log = server.log.read_text()
    assert f'"AWS_ENDPOINT_URL": "{server.endpoint}"' in log
    assert f'"LAKEGATE_S3_ENDPOINT": "{server.endpoint}"' in log
    assert f'"HOME": "{os.environ["HOME"]}"' not in log


def test_killed_or_stopped_it_is_started_anew_and_keeps_what_it_has(tmp_path: Path) -> None:
    server = MiniStack(tmp_path, SilentNarrator())
    first = server.start()
    try:
        client(server, "s3").create_bucket(Bucket="lake")
        client(server, "s3").put_object(Bucket="lake", Key="a", Body=b"1")
        killed = pid_of(tmp_path)
        os.kill(killed, signal.SIGKILL)
        until_gone(killed)
        assert server.endpoint is None
        assert MiniStack(tmp_path, SilentNarrator()).start() == first
        assert client(server, "s3").get_object(Bucket="lake", Key="a")["Body"].read() == b"1"

        # Stopped, it takes busy functions with it.
        make_function(server)
        client(server, "lambda").invoke(FunctionName="f", InvocationType="Event", Payload=b'{"busy_s": 100}')
        tmp = tmp_path / ".lakegate" / "ministack" / "tmp"
        workers = wait_until(lambda: process.find_below(tmp), within_s=_TIMEOUT_S, poll_s=0.2)
        assert server.stop()
        assert not server.stop()
        for worker in workers:
            until_gone(worker.pid)
        assert not tmp.exists()
        server.start()
        assert [one["FunctionName"] for one in client(server, "lambda").list_functions()["Functions"]] == ["f"]
    finally:
        server.stop()
