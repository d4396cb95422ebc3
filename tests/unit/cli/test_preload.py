"""Commands in a fork of the preloaded process behave as if they ran where they were started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import click
import psutil
import pytest

import lakegate
from lakegate.cli import preload
from lakegate.cli.main import cli
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads on Linux only")
# The modules loaded in the client show whether the command ran there.
CLIENT = """
import sys
from lakegate.cli import preload
preload._PATIENCE_S = 60
def end_like(status):
    print("click" in sys.modules, file=sys.stderr)
    end(status)
end, preload._end_as = preload._end_as, end_like
preload.main()
"""
ENVIRONMENT = os.environ | {"LAKEGATE_LOCAL_PRELOAD": "true"}


class _Project:
    """A project whose servers seem to run, and its preloaded process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # A copy: the process ends when a file of the program changes, and somebody may edit one during this test.
        program = home / "program"
        shutil.copytree(Path(lakegate.__file__).parent, program / "lakegate")
        self.environment = ENVIRONMENT | {"PYTHONPATH": str(program)}
        self.state = home / ".lakegate" / "stack.json"
        (home / ".lakegate" / "logs").mkdir(parents=True)
        self.state.write_text(json.dumps({"services": {"nessie": {"pid": os.getpid()}}}))

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        return self.start_to(subprocess.PIPE, *words, **variables)

    def start_to(self, output: IO[str] | int, *words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, *words],
            cwd=self.home,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **variables: str) -> tuple[bool, int, str, str]:
        """Return whether a fork ran the command, its exit code, and its output."""
        running = self.start(*words, **variables)
        printed, told = running.communicate(timeout=120)
        return told.endswith("False\n"), running.returncode, printed, told.removesuffix("False\n")

    def server(self) -> psutil.Process | None:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cmdline()[1:5] == ["-P", "-m", preload.__name__, str(self.home)]:
                    return process
        return None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Project]:
    made = _Project(tmp_path_factory.mktemp("lake"))
    handed_over, *ended = made.run("runs")
    assert not handed_over
    assert ended == [0, "", "No runs.\n"]
    wait_until((made.home / ".lakegate" / preload.SOCKET).exists)
    yield made
    made.state.unlink()  # as when the servers were stopped
    wait_until(lambda: made.server() is None)


def test_a_fork_gets_the_arguments_folder_and_environment(project: _Project) -> None:
    assert project.run("runs", "-o", "json") == (True, 0, "[]\n", "")
    # its arguments, its working folder, its environment
    handed_over, code, _, told = project.run("inspect", "no-such-file.csv")
    assert (handed_over, code) == (True, 2)
    assert "no-such-file.csv" in told
    handed_over, code, _, told = project.run("runs", LAKEGATE_JOURNAL_URL="mysql://localhost/x")
    assert (handed_over, code) == (True, 2)
    assert "'journal.url'" in told
    handed_over, code, _, told = project.run("ingest", "nyc.trips", "no-such-file.csv")
    assert (handed_over, code) == (True, 2)
    assert "no-such-file.csv" in told
    completing = {"_LAKEGATE_COMPLETE": "bash_complete", "COMP_WORDS": "lakegate run", "COMP_CWORD": "1"}
    assert project.run(**completing) == (True, 0, "plain,runs\n", "")


def test_standard_output_is_the_client_s(project: _Project) -> None:
    words = [sys.executable, "-c", CLIENT, "runs", "-o", "json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words,
            cwd=project.home,
            env=project.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 5
    assert "Standard output is incomplete: No space left on device." in done.stderr
    assert done.stderr.endswith("False\n")


@pytest.mark.parametrize(
    ("words", "is_so"),
    [
        ([], False),
        (["--help"], False),
        (["--home", "runs", "-q", "log"], True),
        (["--home=x", "version"], False),
        (["branch"], True),
        (["--home", "x", "branch", "list"], True),
        (["branch", "delete", "list"], False),
        (["table", "-o", "json"], False),
        (["table", "show", "nyc.trips"], True),
        (["ingest", "log"], False),
    ],
)
def test_commands_that_only_read(words: list[str], *, is_so: bool) -> None:
    assert preload.only_reads(words) == is_so


def test_only_a_project_with_servers_is_connected_to(project: _Project, monkeypatch: pytest.MonkeyPatch) -> None:
    below = project.home / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert preload.served_home(["runs"]) == str(project.home)
    assert preload.served_home(["runs", "--home", ".."]) == f"{below}/.."
    assert preload.served_home(["runs", "--home=/nowhere"]) is None
    assert preload.served_home(["inspect", "/dev/fd/63"]) is None  # a shell's <(…)
    (below / "lakegate.toml").touch()
    assert preload.served_home(["runs"]) is None


def test_a_command_is_not_handed_over_if_a_fork_would_differ(project: _Project) -> None:
    assert project.run("runs", "-o", "json", LC_ALL="C") == (False, 0, "[]\n", "")


def test_commands_that_ask_last_long_or_stop_servers_are_not_handed_over(project: _Project) -> None:
    for words in (["down", "--help"], ["watch", "--help"], ["up", "--help"], ["table", "drop", "--help"]):
        assert project.run(*words)[:2] == (False, 0)
    assert project.run("publish", "--help")[:2] == (True, 0)


def test_variables_that_are_read_at_the_start_are_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = preload.surroundings()
    monkeypatch.setenv("LAKEGATE_TOKEN", "x")
    assert preload.surroundings() == before
    monkeypatch.setenv("LD_PRELOAD", "x")
    assert preload.surroundings() != before


@pytest.mark.parametrize(
    ("number", "code", "text"), [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 130, "Interrupted"), (9, -9, "")]
)
def test_signals_end_the_fork(project: _Project, number: int, code: int, text: str) -> None:
    server = project.server()
    assert server is not None
    with socket.create_server(("127.0.0.1", 0)) as catalog:
        # A catalog that never answers
        address = {
            "LAKEGATE_CATALOG_URI": f"http://127.0.0.1:{catalog.getsockname()[1]}/api/v2",
            "LAKEGATE_CATALOG_WAREHOUSE": f"file://{project.home}/warehouse",
        }
        running = project.start("branch", "list", **address)
        with catalog.accept()[0]:
            (command,) = (two for one in server.children() for two in one.children())
            running.send_signal(number)
            _, told = running.communicate(timeout=60)
    assert running.returncode == code
    assert text in told
    wait_until(lambda: not command.is_running())


def test_the_settings_can_turn_it_off(tmp_path: Path) -> None:
    project = _Project(tmp_path)
    assert project.run("runs", LAKEGATE_LOCAL_PRELOAD="false")[1] == 0
    assert not (tmp_path / ".lakegate" / "preload.lock").exists()


def test_no_command_that_asks_is_handed_over() -> None:
    def asking(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from asking(command, *above, name)
            elif command is not None and any("--yes" in one.opts and not one.required for one in command.params):
                yield (*above, name)

    words = [list(words) for words in asking(cli)]
    assert ["table", "truncate"] in words
    assert not any(map(preload.is_handed_over, words))
