from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.errors import LocalStackError
from lakegate.local import process
from lakegate.local.process import StopTarget
from lakegate.local.servers import failed_to_bind, most_relevant_line

_SLEEP = "import time; time.sleep(600)"
_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


@pytest.fixture
def spawned(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        child.kill()
        child.wait()


def _spawn(tmp_path: Path, script: str, instance: str) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-c", script, *process.marker_options(tmp_path, "nessie", instance))
    return process.spawn(command, env=process.environment({}), cwd=tmp_path, log=tmp_path / "log")


def test_a_process_is_recognised_by_its_instance(tmp_path: Path, spawned: list[subprocess.Popen[bytes]]) -> None:
    child = _spawn(tmp_path, _SLEEP, "one")
    spawned.append(child)
    assert process.is_instance(child.pid, "one")
    assert not process.is_instance(child.pid, "on")
    assert not process.is_instance(os.getpid(), "one")
    assert process.find_marked(tmp_path) == {child.pid: "nessie"}
    assert process.find_marked(tmp_path.parent) == {}
    child.kill()
    # A zombie, not yet reaped, is as gone as one that was.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_instance(child.pid, "one")


def test_stop_leaves_others_alone(tmp_path: Path, spawned: list[subprocess.Popen[bytes]]) -> None:
    mine, other = _spawn(tmp_path, _SLEEP, "mine"), _spawn(tmp_path, _SLEEP, "other")
    spawned += [mine, other]
    process.stop([StopTarget.instance(mine.pid, "mine"), StopTarget.instance(other.pid, "mine")], grace_s=10)
    assert not process.is_instance(mine.pid, "mine")
    assert process.is_instance(other.pid, "other")
    process.stop([StopTarget.instance(mine.pid, "mine")], grace_s=10)


def test_stop_kills_processes_that_ignore_term(tmp_path: Path, spawned: list[subprocess.Popen[bytes]]) -> None:
    child = _spawn(tmp_path, _STUBBORN, "deaf")
    spawned.append(child)
    while not (tmp_path / "log").read_bytes():
        assert child.poll() is None
    process.stop([StopTarget.instance(child.pid, "deaf")], grace_s=0.2)
    assert not process.is_instance(child.pid, "deaf")


def test_the_previous_log_is_kept(tmp_path: Path, spawned: list[subprocess.Popen[bytes]]) -> None:
    for number in (1, 2):
        child = _spawn(tmp_path, f"print({number})", str(number))
        spawned.append(child)
        child.wait()
    assert (tmp_path / "log.1").read_text() == "1\n"
    assert (tmp_path / "log").read_text() == "2\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_missing_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="Can't start java"):
        process.spawn((str(tmp_path / "java"),), env={}, cwd=tmp_path, log=tmp_path / "log")


def test_secrets_are_not_passed_to_servers() -> None:
    source = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "SPARK_CONF_DIR": "/etc/spark", "QUARKUS_HTTP_PORT": "1"}
    assert process.environment({}, source) == {"PATH": "/bin"}


def test_the_users_java_options_reach_the_servers() -> None:
    source = {"JAVA_TOOL_OPTIONS": "-Da=b", "JDK_JAVA_OPTIONS": "-Djavax.net.ssl.trustStore=/company.p12"}
    assert process.environment({}, source) == source


def test_free_ports_are_free_and_avoid_others() -> None:
    port = process.free_port()
    assert process.is_free(port)
    assert process.free_port({port}) != port


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("INFO starting\nERROR bad thing\n\tat x.y(Z.java)\nINFO bye\n", "ERROR bad thing"),
        ("first\nlast\n\n", "last"),
        ("WARN x\nCaused by: java.net.BindException: Address already in use\n", None),
    ],
)
def test_the_most_relevant_line(tmp_path: Path, text: str, line: str | None) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    if "Caused" in text:
        assert failed_to_bind(log)
    else:
        assert most_relevant_line(log) == line
        assert not failed_to_bind(log)
