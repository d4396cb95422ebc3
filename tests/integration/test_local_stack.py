"""The embedded stack with the real servers, and jars from the real repository. Needs the network once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from lakegate.config import LocalSettings
from lakegate.local import LocalStack, StackState, artifacts, prepare, process
from lakegate.local.archives import archive_options, archive_path
from lakegate.local.state import StackFolder
from lakegate.model.artifacts import ICEBERG, NESSIE, Artifact
from lakegate.ports import Step

pytestmark = pytest.mark.jvm

_UP = """
import contextlib, sys
from pathlib import Path
from lakegate.config import LocalSettings
from lakegate.local import LocalStack

class Narrator:
    @contextlib.contextmanager
    def step(self, text):
        yield self
    def progress(self, done, total, unit): pass
    def note(self, text): pass

state = LocalStack(Path(sys.argv[1]), LocalSettings(start_timeout_s=300), Narrator()).up()
print(state.nessie.pid, state.spark.pid)
"""
# Old enough never to change, and small.
_INJECT = Artifact(
    group="javax.inject",
    name="javax.inject",
    version="1",
    size_bytes=2497,
    sha256="91c77044a50c481636c32d916fd89c9118a72195390452c81065080f957de7ff",
)


class _Silent:
    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[Step]:
        yield self

    def progress(self, done: int, total: int, unit: str) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("a project, ü")
    yield folder
    _stack(folder).down()
    assert process.find_marked(folder) == {}


def _stack(home: Path) -> LocalStack:
    return LocalStack(home, LocalSettings(nessie_memory="384m", spark_memory="1g", start_timeout_s=300), _Silent())


def _create_branch(state: StackState, name: str) -> None:
    with httpx.Client(base_url=state.nessie_uri) as client:
        main = client.get("trees/main").raise_for_status().json()["reference"]
        client.post("trees", params={"name": name, "type": "BRANCH"}, json=main).raise_for_status()


def _branches(state: StackState) -> set[str]:
    answer = httpx.get(f"{state.nessie_uri}/trees").raise_for_status().json()
    return {reference["name"] for reference in answer["references"]}


def test_two_commands_at_once_start_one_stack_that_outlives_them(home: Path) -> None:
    commands = [
        subprocess.Popen([sys.executable, "-c", _UP, str(home)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = {command.communicate()[0] for command in commands}
    assert [command.returncode for command in commands] == [0, 0]
    state = _stack(home).up()
    assert answers == {f"{state.nessie.pid} {state.spark.pid}\n"}
    assert len(process.find_marked(home)) == 2


def test_java_goes_on_without_an_archive_that_is_damaged(tmp_path: Path) -> None:
    """It would crash on one that it doesn't check."""
    jars = prepare(_Silent())
    for name, class_path in (("nessie", jars[NESSIE]), ("spark", f"{jars[ICEBERG]}:{artifacts.spark_jars()}/*")):
        archive = archive_path(name)
        damaged = tmp_path / archive.name
        damaged.write_bytes(archive.read_bytes())
        with damaged.open("r+b") as file:
            file.seek(damaged.stat().st_size // 2)
            file.write(os.urandom(2**20))
        options = [option.replace(str(archive), str(damaged)) for option in archive_options(name)]
        done = subprocess.run(
            # Without a program: Java looks at the archive first.
            [artifacts.java(), *options, "-cp", class_path, "-version"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Checksum verification failed" in done.stdout, done


def test_both_listen_on_loopback_only(home: Path) -> None:
    state = _stack(home).up()
    for pid in (state.nessie.pid, state.spark.pid):
        sockets = psutil.Process(pid).net_connections("inet")
        listening = {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
        assert listening
        assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_spark_wants_the_token(home: Path) -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql import SparkSession

    state = _stack(home).up()
    session = SparkSession.builder.remote(state.spark_url).create()
    try:
        assert session.sql("SELECT 3").collect()[0][0] == 3
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        session.stop()
    stranger = SparkSession.builder.remote(f"sc://localhost:{state.spark.port}/;token=wrong").create()
    try:
        with pytest.raises(SparkConnectGrpcException, match="UNAUTHENTICATED"):
            stranger.range(1).count()
    finally:
        stranger.client.close()


def test_a_killed_nessie_is_replaced_and_no_data_lost(home: Path) -> None:
    first = _stack(home).up()
    _create_branch(first, "before-kill")
    os.kill(first.nessie.pid, signal.SIGKILL)
    second = _stack(home).up()
    assert second.spark == first.spark
    assert second.nessie != first.nessie
    assert second.nessie_uri == first.nessie_uri
    assert "before-kill" in _branches(second)


def test_data_survives_down_and_up_without_secrets_of_the_caller_and_down_leaves_no_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _stack(home).up()
    _create_branch(first, "before-down")
    assert _stack(home).down() == ("spark", "nessie")
    assert process.find_marked(home) == {}
    assert [status.state for status in _stack(home).status()] == ["stopped", "stopped"]
    # Beside the logs and the data, only what is to be remembered is left.
    names = {path.name for path in StackFolder(home).path.iterdir()}
    beside = {".gitignore", "idle.lock", "stack.json", "stack.lock", "stack.use"}
    assert names == beside | {"logs", "nessie", "warehouse"}
    assert {path.name for path in home.iterdir()} == {".lakegate"}
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    second = _stack(home).up()
    assert "before-down" in _branches(second)
    assert second.nessie_uri == first.nessie_uri
    for service in (second.nessie, second.spark):
        assert service not in (first.nessie, first.spark)
        assert "DATABASE_PASSWORD" not in psutil.Process(service.pid).environ()
    assert str(second.spark.token) not in " ".join(process.command_line(second.spark.pid))


def test_a_damaged_jar_is_fetched_again(tmp_path: Path) -> None:
    path = tmp_path / "jars" / _INJECT.file_name
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    assert prepare(_Silent(), artifacts=[_INJECT], cache=tmp_path) == {_INJECT: path}
    assert path.stat().st_size == _INJECT.size_bytes
