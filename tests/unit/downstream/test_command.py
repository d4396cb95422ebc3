"""A command as a downstream system: its input, and what happens if it fails or hangs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lakegate.downstream.command import CommandTarget
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import DownstreamEvent
from lakegate.progress import hide
from support.downstream_contract import changed, dropped, event
from support.waiting import wait_until

COPY = """
import json, os, sys
kept = {key: value for key, value in os.environ.items() if key.startswith("LAKEGATE_EVENT")}
json.dump({"stdin": sys.stdin.read(), "env": kept, "cwd": os.getcwd()}, open("told.json", "w"))
"""


def command(code: str, cwd: Path, timeout_s: float = 30) -> CommandTarget:
    return CommandTarget("dbt", [sys.executable, "-Sc", code], cwd, timeout_s)


def test_it_finds_the_event_on_standard_input_and_its_facts_in_variables(tmp_path: Path) -> None:
    sent = event(changed(number=0), changed("nyc.fares"), dropped("nyc.old"))
    command(COPY, tmp_path).deliver(sent, None)
    told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert DownstreamEvent.model_validate_json(told["stdin"]) == sent
    assert told["cwd"] == str(tmp_path)
    assert told["env"] == {
        "LAKEGATE_EVENT": "published",
        "LAKEGATE_EVENT_DOWNSTREAM": "dbt",
        "LAKEGATE_EVENT_ID": sent.event_id,
        "LAKEGATE_EVENT_RUN_ID": "r1",
        "LAKEGATE_EVENT_REF": "main",
        "LAKEGATE_EVENT_COMMIT": sent.commit,
        "LAKEGATE_EVENT_TABLES": "nyc.trips nyc.fares nyc.old",
        "LAKEGATE_EVENT_CREATED": "nyc.trips",
        "LAKEGATE_EVENT_DROPPED": "nyc.old",
    }


def test_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    code = "import sys; assert sys.argv[1:] == ['$HOME; touch x', '*'], sys.argv"
    CommandTarget("dbt", [sys.executable, "-Sc", code, "$HOME; touch x", "*"], tmp_path, 30).deliver(event(), None)
    assert list(tmp_path.iterdir()) == []


def test_one_that_reads_nothing_of_a_long_event_is_fine(tmp_path: Path) -> None:
    many = [changed(f"nyc.t{number}") for number in range(2000)]
    command("pass", tmp_path).deliver(event(*many), None)


def test_what_it_prints_is_logged_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hide("hunter2secret")
    with caplog.at_level(logging.INFO, "lakegate.downstream.command"):
        command(
            "import sys; print('ok', flush=True); print('pw=hunter2secret\\x1b[31m', file=sys.stderr)", tmp_path
        ).deliver(event(), None)
    assert [record.getMessage() for record in caplog.records] == ["dbt: ok", "dbt: pw=…\\x1b[31m"]


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        ("raise SystemExit(2)", DownstreamUnavailableError, "exit code 2"),
        ("import os; os.kill(os.getpid(), 9)", DownstreamUnavailableError, "signal 9"),
        ("raise SystemExit(65)", DownstreamError, "refused"),
    ],
)
def test_how_it_ends_says_whether_to_try_again(tmp_path: Path, code: str, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        command(code, tmp_path).deliver(event(), None)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a command names its child; its timeout begins only when that's written."""
    told, wait = tmp_path / "pid", subprocess.Popen.wait

    def wait_once_it_hangs(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        wait_until(told.exists)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_hangs)
    return told


def test_one_that_hangs_is_stopped_with_all_that_it_started(tmp_path: Path, told: Path) -> None:
    code = """
import os, pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(600)"])
pathlib.Path("new").write_text(str(child.pid))
os.rename("new", "pid")
child.wait()
"""
    with pytest.raises(DownstreamUnavailableError, match="longer than"):
        command(code, tmp_path, timeout_s=0.1).deliver(event(), None)
    pid = int(told.read_text(encoding="utf-8"))
    wait_until(lambda: has_ended(pid))


def test_a_child_that_ignores_a_request_to_stop_is_stopped_too(
    tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, pathlib, signal, subprocess, sys
ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-Sc", ignoring], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path("new").write_text(str(child.pid))
os.rename("new", "pid")
child.wait()
"""
    monkeypatch.setattr("lakegate.downstream.command._GRACE_S", 0.1)
    with pytest.raises(DownstreamUnavailableError, match="longer than"):
        command(code, tmp_path, timeout_s=0.1).deliver(event(), None)
    pid = int(told.read_text(encoding="utf-8"))
    try:
        wait_until(lambda: has_ended(pid))
    finally:
        if not has_ended(pid):
            psutil.Process(pid).kill()


def has_ended(pid: int) -> bool:
    """Return whether a process is gone or a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = CommandTarget("dbt", ["no-such-program"], tmp_path, 10)
    with pytest.raises(DownstreamUnavailableError, match="no-such-program can't be run"):
        missing.deliver(event(), None)
    with pytest.raises(DownstreamError, match="no-such-program can't be found"):
        missing.test()
    with pytest.raises(DownstreamError, match="doesn't exist"):
        CommandTarget("dbt", ["true"], tmp_path / "x", 10).test()
