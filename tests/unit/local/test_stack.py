"""The stack's life cycle with ten-line servers; tests/integration has the real ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakegate.components import local_stack
from lakegate.config import GcsSettings, LocalSettings, S3Settings, Settings
from lakegate.errors import ConfigurationError, LocalStackError
from lakegate.local import LocalStack, StackState, process, stack
from lakegate.local.servers import SERVERS, Launch, LocalServer, nessie_answers
from lakegate.local.state import SERVICE_NAMES, StackFolder
from lakegate.local.stores import SparkStores
from lakegate.ports import Step

_SERVE = """
import socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    connection.close()
"""
_DIE = "import sys; print('ERROR no luck today with ' + sys.argv[1]); print('bye'); sys.exit(3)"
_HANG = "import time; time.sleep(600)"

S3 = SparkStores(s3=S3Settings(endpoint="http://127.0.0.1:1", path_style=True))
ELSEWHERE = SparkStores(s3=S3Settings(endpoint="http://127.0.0.1:2"))


class _Recorder:
    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[Step]:
        self.texts.append(text)
        yield self

    def progress(self, done: int, total: int, unit: str) -> None:
        assert 0 <= done <= total
        assert unit

    def note(self, text: str) -> None:
        self.texts.append(text)


def _fake(server: LocalServer, script: str) -> LocalServer:
    def command(launch: Launch) -> tuple[str, ...]:
        marker_options = process.marker_options(launch.folder.home, server.name, launch.instance)
        return (sys.executable, "-I", "-S", "-c", script, str(launch.port), *marker_options)

    return replace(
        server,
        command=command,
        answers=nessie_answers,
        version=lambda: "1",
        variables=lambda _: {},
    )


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def use(name: str, script: str) -> None:
        for known in SERVICE_NAMES:
            if known == name:
                monkeypatch.setitem(SERVERS, known, _fake(SERVERS[known], script))

    for name in SERVICE_NAMES:
        use(name, _SERVE)
    monkeypatch.setattr(stack, "prepare", lambda _narrator, **_: {})
    return use


@pytest.fixture
def home(tmp_path: Path, scripts: Callable[[str, str], None]) -> Iterator[Path]:
    folder = tmp_path / "a project, ü"
    folder.mkdir()
    yield folder
    for place in tmp_path.iterdir():
        targets = [process.StopTarget.marked(pid, place) for pid in process.find_marked(place)]
        process.stop(targets, grace_s=10)


def _stack(home: Path, recorder: _Recorder | None = None, timeout_s: float = 30) -> LocalStack:
    return LocalStack(home, LocalSettings(start_timeout_s=timeout_s), recorder or _Recorder())


def _pids(state: StackState) -> tuple[int, int]:
    return state.nessie.pid, state.spark.pid


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def test_up_starts_both_and_a_second_up_finds_them(home: Path) -> None:
    first = _stack(home).up()
    recorder = _Recorder()
    assert _stack(home, recorder).up() == first
    assert recorder.texts == []
    assert first.nessie.port != first.spark.port
    assert first.spark_url == f"sc://localhost:{first.spark.port}/;token={first.spark.token}"
    assert first.nessie_uri == f"http://127.0.0.1:{first.nessie.port}/api/v2"
    assert first.warehouse == f"file://{home}/.lakegate/warehouse"
    assert first.nessie.token is None


def test_a_project_with_another_catalog_starts_no_nessie(home: Path) -> None:
    catalog = {"uri": "http://nessie.internal/api/v2", "warehouse": home.as_uri()}
    settings, recorder = Settings.model_validate({"catalog": catalog, "local": {"start_timeout_s": 30}}), _Recorder()
    stack = local_stack(home, settings, recorder)
    state = stack.up()
    assert stack.up() == state
    assert recorder.texts == ["Starting Spark Connect"]
    assert [one.name for one in stack.status()] == ["spark"]
    assert stack.down() == ("spark",)


def test_the_token_is_long_private_and_not_shown(home: Path) -> None:
    state = _stack(home).up()
    token = state.spark.token
    assert token is not None
    assert len(token) >= 32
    assert token not in repr(state)
    assert not any(token in part for part in process.command_line(state.spark.pid))
    folder = StackFolder(home)
    assert folder.state_path.stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_down_stops_both_and_keeps_their_ports(home: Path) -> None:
    first = _stack(home).up()
    assert _stack(home).down() == ("spark", "nessie")
    assert not any(process.command_line(pid) for pid in _pids(first))
    assert _stack(home).down() == ()
    second = _stack(home).up()
    assert (second.nessie.port, second.spark.port) == (first.nessie.port, first.spark.port)
    assert second.spark.token != first.spark.token


@pytest.mark.parametrize("victim", SERVICE_NAMES)
def test_only_the_dead_server_is_restarted(home: Path, victim: str) -> None:
    first = _stack(home).up()
    dead, other = (first.nessie, first.spark) if victim == "nessie" else (first.spark, first.nessie)
    _kill(dead.pid)
    states = {status.name: status.state for status in _stack(home).status()}
    assert states == {dead.name: "stopped", other.name: "running"}
    second = _stack(home).up()
    assert other in (second.nessie, second.spark)
    assert dead.pid not in _pids(second)


def test_an_unresponsive_server_is_restarted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _stack(home).up()
    os.kill(first.nessie.pid, signal.SIGSTOP)
    monkeypatch.setattr(stack, "_UNRESPONSIVE_GRACE_S", 0.1)
    monkeypatch.setitem(SERVERS, "nessie", replace(SERVERS["nessie"], stop_grace_s=0.2))
    assert _stack(home).status()[0].state == "unresponsive"
    folder = StackFolder(home)
    file = folder.read()
    assert file is not None
    long_ago = datetime.now(UTC) - timedelta(hours=1)  # so it isn't waited for as one that may still be starting
    folder.write(file.with_service(file.services["nessie"].model_copy(update={"started_at": long_ago})))
    recorder = _Recorder()
    second = _stack(home, recorder).up()
    assert second.nessie.pid != first.nessie.pid
    assert second.spark == first.spark
    assert "Nessie doesn't answer; restarting it." in recorder.texts


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"home": 1}', '{"home": "/x", "services": {"nessie": {}}}', "\x00"]
)
def test_a_broken_state_file_is_replaced(home: Path, content: str) -> None:
    first = _stack(home).up()
    StackFolder(home).state_path.write_text(content, encoding="utf-8")
    assert {status.state for status in _stack(home).status()} == {"stopped"}
    second = _stack(home).up()
    assert not set(_pids(first)) & set(_pids(second))
    assert set(process.find_marked(home)) == set(_pids(second))


def test_down_stops_servers_whose_folder_was_deleted(home: Path) -> None:
    first = _stack(home).up()
    shutil.rmtree(StackFolder(home).path)
    assert {status.state for status in _stack(home).status()} == {"stopped"}
    assert _stack(home).down() == ("spark", "nessie")
    assert not any(process.command_line(pid) for pid in _pids(first))
    assert not StackFolder(home).path.exists()


def test_a_reused_pid_is_not_taken_for_ours(home: Path) -> None:
    state = _stack(home).up()
    _stack(home).down()
    folder = StackFolder(home)
    file = folder.read()
    assert file is not None
    folder.write(file.with_service(state.nessie.model_copy(update={"pid": os.getpid()})))
    assert _stack(home).status()[0].state == "stopped"
    assert _stack(home).down() == ()


def test_a_copy_of_the_project_gets_its_own_servers(home: Path) -> None:
    first = _stack(home).up()
    copy = home.with_name("copy")
    shutil.copytree(home, copy)
    assert {status.state for status in _stack(copy).status()} == {"stopped"}
    second = _stack(copy).up()
    assert not set(_pids(first)) & set(_pids(second))
    assert _stack(home).up() == first
    _stack(copy).down()
    assert _stack(home).up() == first


def test_when_one_dies_none_is_left_and_the_log_is_quoted(home: Path, scripts: Callable[[str, str], None]) -> None:
    scripts("spark", _DIE)
    with pytest.raises(LocalStackError, match="ERROR no luck today") as caught:
        _stack(home).up()
    assert "Spark Connect didn't start: it ended with exit code 3" in caught.value.message
    assert str(StackFolder(home).log("spark")) in caught.value.message
    assert process.find_marked(home) == {}
    assert {status.state for status in _stack(home).status()} == {"stopped"}
    scripts("spark", _SERVE)
    assert _stack(home).up().spark.pid in process.find_marked(home)


def test_a_failed_start_keeps_the_server_that_was_running(home: Path, scripts: Callable[[str, str], None]) -> None:
    first = _stack(home).up()
    _kill(first.spark.pid)
    scripts("spark", _DIE)
    with pytest.raises(LocalStackError, match="Spark Connect"):
        _stack(home).up()
    assert process.find_marked(home) == {first.nessie.pid: "nessie"}
    assert _stack(home).status()[0].state == "running"


def test_a_server_that_never_answers_is_given_up(home: Path, scripts: Callable[[str, str], None]) -> None:
    scripts("nessie", _HANG)
    with pytest.raises(LocalStackError, match=r"Nessie didn't answer within 1\.5 s") as caught:
        _stack(home, timeout_s=1.5).up()
    assert caught.value.hint is not None
    assert "start_timeout_s" in caught.value.hint
    assert process.find_marked(home) == {}


def test_an_interrupt_stops_the_started_servers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(port: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setitem(SERVERS, "spark", replace(SERVERS["spark"], answers=interrupted))
    with pytest.raises(KeyboardInterrupt):
        _stack(home).up()
    assert process.find_marked(home) == {}


def test_a_start_that_was_killed_halfway_is_continued(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _stack(home).up()
    folder = StackFolder(home)
    file = folder.read()
    assert file is not None
    _kill(first.spark.pid)
    folder.write(file.without("spark"))  # as after a kill between the two starts
    second = _stack(home).up()
    assert second.nessie == first.nessie
    assert second.spark.pid != first.spark.pid


def test_two_at_once_start_one_stack(home: Path) -> None:
    states: list[StackState] = []
    threads = [threading.Thread(target=lambda: states.append(_stack(home).up())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({_pids(state) for state in states}) == 1
    assert len(states) == 4
    assert len(process.find_marked(home)) == 2


def test_a_home_that_is_a_file_is_a_clear_error(tmp_path: Path, scripts: Callable[[str, str], None]) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match="can't use") as caught:
        _stack(file).up()
    assert str(file) in caught.value.message
    assert {status.state for status in _stack(file).status()} == {"stopped"}
    assert _stack(file).down() == ()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_clear_error(home: Path) -> None:
    home.chmod(0o500)
    try:
        with pytest.raises(ConfigurationError, match="Permission denied"):
            _stack(home).up()
    finally:
        home.chmod(0o700)


def test_an_unwritable_state_file_leaves_no_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(source))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(LocalStackError, match="No space left on device"):
        _stack(home).up()
    monkeypatch.undo()
    assert process.find_marked(home) == {}
    assert not list(StackFolder(home).path.glob("stack.json*"))


def test_spark_is_restarted_once_to_read_from_s3(home: Path) -> None:
    plain = _stack(home).up()
    recorder = _Recorder()
    reading = _stack(home, recorder).up(S3)
    assert recorder.texts == ["Stopping Spark Connect", "Starting Spark Connect"]
    assert (reading.nessie, reading.spark.port) == (plain.nessie, plain.spark.port)
    assert (plain.spark.stores, reading.spark.stores, reading.nessie.stores) == (SparkStores(), S3, SparkStores())
    assert _stack(home).up() == reading
    assert _stack(home).up(S3) == reading
    _stack(home).down()
    assert _stack(home).up().spark.stores == S3
    assert _stack(home).up(ELSEWHERE).spark.stores == ELSEWHERE


def test_spark_alone_starts_without_nessie_which_joins_it_later(home: Path) -> None:
    recorder = _Recorder()
    stack = _stack(home, recorder)
    spark = stack.use(alone=True)
    assert [(one.name, one.state) for one in stack.status()] == [("nessie", "stopped"), ("spark", "running")]
    assert _stack(home).up().spark == spark
    assert recorder.texts == ["Starting Spark Connect"]
    stack.release()


def test_spark_is_not_restarted_while_it_is_used(home: Path) -> None:
    user, other = _stack(home), _stack(home)
    using = user.use()
    for act in (other.up, other.use):
        with pytest.raises(LocalStackError, match="another lakegate is using it") as caught:
            act(S3)
        assert "lakegate down" in str(caught.value.hint)
    assert user.up().spark == using
    assert user.use(S3).stores == S3  # its only user may
    assert other.use(S3).stores == S3
    other.release()
    user.release()
    assert other.up(ELSEWHERE).spark.stores == ELSEWHERE


def test_other_credentials_do_not_restart_a_spark_in_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, other = _stack(home), _stack(home)
    first = user.use(S3)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-new-secret")
    assert other.up(S3).spark == first
    user.release()
    second = other.up(S3)
    assert second.spark.instance != first.instance
    assert "a-new-secret" not in StackFolder(home).state_path.read_text(encoding="utf-8")


def test_spark_reaches_the_warehouse_from_the_start_and_other_stores_too(home: Path) -> None:
    recorder, google = _Recorder(), GcsSettings()
    local = LocalStack(home, LocalSettings(), recorder, lambda: S3)
    assert local.up().spark.stores == S3
    assert local.switch(SparkStores(gcs=google), in_transaction=False)
    assert local.use().stores == SparkStores(s3=S3.s3, gcs=google)
    assert recorder.texts == ["Starting Nessie and Spark Connect", "Stopping Spark Connect", "Starting Spark Connect"]
    local.release()
