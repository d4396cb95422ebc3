"""The local Spark's settings for S3, and who counts as its user."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakegate.config import LocalSettings, S3Settings
from lakegate.errors import LocalStackError
from lakegate.local.servers import SERVERS, Launch
from lakegate.local.state import StackFolder, Usage
from lakegate.local.stores import SparkStores, credentials_mark
from lakegate.model.artifacts import ARTIFACTS, S3_ARTIFACTS

SECRETS = {"AWS_ACCESS_KEY_ID": "the-key-id", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_SESSION_TOKEN": "the-token"}
REACHED = SparkStores(s3=S3Settings())
_HOLD = """
import sys
from pathlib import Path
from lakegate.local.state import StackFolder
from lakegate.local.stores import SparkStores, credentials_mark
from lakegate.local.state import StackFolder, Usage
folder = StackFolder(Path(sys.argv[1]))
Usage(folder, folder.usage_path, 'working').hold(10)
print("held", flush=True)
sys.stdin.read()
"""


def launch(home: Path, s3: S3Settings | None) -> Launch:
    """A started Spark that reaches S3."""
    return Launch(
        folder=StackFolder(home),
        settings=LocalSettings(),
        jars={artifact: Path("/jars") / artifact.file_name for artifact in (*ARTIFACTS, *S3_ARTIFACTS)},
        stores=SparkStores(s3=s3),
        instance="0" * 32,
        port=1,
        management_port=2,
        token="token",
    )


@pytest.fixture
def with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_credentials_are_passed_only_in_the_environment(tmp_path: Path, with_credentials: None) -> None:
    start = launch(tmp_path, S3Settings(endpoint="https://s3.example.com", region="eu-west-1", path_style=True))
    command, variables = SERVERS["spark"].command(start), SERVERS["spark"].variables(start)
    assert variables.items() >= SECRETS.items()
    assert not [word for word in command for secret in SECRETS.values() if secret in word]
    for setting in (
        "fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint=https://s3.example.com",
        "fs.s3a.endpoint.region=eu-west-1",
        "fs.s3a.path.style.access=true",
    ):
        assert f"spark.hadoop.{setting}" in command
    (class_path,) = (following for word, following in itertools.pairwise(command) if word == "-cp")
    assert class_path.count(".jar") == 1 + len(S3_ARTIFACTS)
    assert "-Duser.timezone=UTC" in command


def test_without_s3_spark_has_none_of_its_settings(tmp_path: Path, with_credentials: None) -> None:
    start = launch(tmp_path, None)
    for server in SERVERS.values():
        assert not [name for name in server.variables(start) if name.startswith("AWS_")]
        assert not [word for word in server.command(start) if "fs.s3" in word or "aws" in word]
        assert "spark.master=local[*, 4]" not in server.command(start)
    reading = launch(tmp_path, S3Settings())
    assert "spark.master=local[*, 4]" in SERVERS["spark"].command(reading)
    assert not [name for name in SERVERS["nessie"].variables(reading) if name.startswith("AWS_")]
    assert not [word for word in SERVERS["spark"].command(reading) if "fs.s3a.endpoint" in word]


def test_a_credentials_mark_differs_without_revealing_them(
    with_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = credentials_mark("one", REACHED)
    assert mark == credentials_mark("one", REACHED) != credentials_mark("two", REACHED)
    assert mark is not None
    assert not [secret for secret in SECRETS.values() if secret in mark]
    assert credentials_mark("one", SparkStores()) is None
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    assert credentials_mark("one", REACHED) != mark


def usage(home: Path) -> Usage:
    folder = StackFolder(home)
    folder.path.mkdir(exist_ok=True)
    return Usage(folder, folder.usage_path, "restarting the local Spark")


def test_usage_is_shared_or_exclusive(tmp_path: Path) -> None:
    first, second = usage(tmp_path), usage(tmp_path)
    for user in (first, first, second):
        user.hold(1)
    with first.alone() as was_alone:
        assert not was_alone
    second.release()
    second.release()
    with first.alone() as was_alone:
        assert was_alone
        with pytest.raises(LocalStackError, match="restarting the local Spark"):
            second.hold(0)
        assert not second.is_held
    with second.alone() as was_alone:
        assert not was_alone
    first.release()
    with second.alone() as was_alone:
        assert was_alone
    second.release()


def test_a_killed_user_no_longer_counts(tmp_path: Path) -> None:
    mine = usage(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with mine.alone() as was_alone:
            assert not was_alone
        other.kill()
        other.wait()
    with mine.alone() as was_alone:
        assert was_alone
