"""Commands whose client or fork is killed, interrupted or hangs during the handover."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lakegate.cli import preload
from lakegate.local import process
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads on Linux only")
# A program that loads instantly and runs its last argument. Its output shows which process ran it.
PROGRAM = """
import os, signal, sys, time, types
from lakegate.cli import preload

def main(leave_behind=None):
    def interrupt(number, frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)
    where = "fork" if sys.argv[0] == "lakegate" else "cold"
    try:
        exec(sys.argv[-1], {**globals(), "where": where})
        code = 0
    except KeyboardInterrupt:
        code = 130
    os._exit(code)

sys.modules["lakegate.cli.main"] = program = types.ModuleType("lakegate.cli.main")
program.main = main
import lakegate.cli
lakegate.cli.main = program
preload._PATIENCE_S = HOW_LONG
"""
SERVER = "preload._load = lambda: None; from pathlib import Path; preload.serve(Path(os.environ['LAKE']))"
SAY = "os.write(1, where.encode())"


class _Lake:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / ".lakegate"
        self.folder.mkdir(parents=True)
        self.log = home / "ran"
        self.startup = home / "startup" / "sitecustomize.py"
        self.startup.parent.mkdir()
        self.startup.touch()
        self.variables = {"LAKE": str(home), "PYTHONPATH": str(self.startup.parent)}
        self.servers: list[subprocess.Popen[str]] = []
        (self.folder / "stack.json").write_text(json.dumps({"services": {"nessie": {"pid": os.getpid()}}}))
        self.note = f"os.write(os.open({str(self.log)!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY), b'ran ')"

    def start(self, text: str, *shell: str, patience: float = 60, **variables: str) -> subprocess.Popen[str]:
        program = PROGRAM.replace("HOW_LONG", str(patience))
        words = [sys.executable, "-c", program + text, variables.pop("command", "runs"), variables.pop("code", SAY)]
        return subprocess.Popen(
            ["/bin/sh", "-c", f'{"; ".join(shell)} exec "$0" "$@"', *words],
            stdin=subprocess.DEVNULL,
            cwd=self.home,
            env={**os.environ, "LAKEGATE_LOCAL_PRELOAD": "true", **self.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def client(self, code: str = SAY, *shell: str, patience: float = 60, **variables: str) -> subprocess.Popen[str]:
        return self.start("preload.main()", *shell, patience=patience, code=code, **variables)

    def run(self, code: str = SAY, *shell: str, patience: float = 60, **variables: str) -> tuple[int, str]:
        running = self.client(code, *shell, patience=patience, **variables)
        printed, _ = running.communicate(timeout=60)
        return running.returncode, printed

    def serve(self, *shell: str) -> psutil.Process:
        server = self.start(SERVER, *shell)
        self.servers.append(server)
        wait_until(self._answers)
        return psutil.Process(server.pid)

    def close(self) -> None:
        for server in self.servers:
            server.kill()
            server.communicate(timeout=60)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
            asking.connect(str(self.folder / preload.SOCKET))
            return True
        return False


def is_gone(process_: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process_.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[_Lake, psutil.Process]]:
    lake = _Lake(tmp_path_factory.mktemp("lake"))
    server = lake.serve('trap "" HUP QUIT;')  # as below nohup
    yield lake, server
    lake.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[_Lake]:
    lake = _Lake(tmp_path)
    yield lake
    lake.close()


@pytest.fixture
def lake(served: tuple[_Lake, psutil.Process]) -> Iterator[_Lake]:
    lake, server = served
    yield lake
    wait_until(lambda: not server.children())
    lake.log.unlink(missing_ok=True)


@pytest.fixture
def server(served: tuple[_Lake, psutil.Process]) -> psutil.Process:
    return served[1]


@pytest.fixture
def unanswered(tmp_path: Path) -> Iterator[tuple[_Lake, socket.socket]]:
    lake = _Lake(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(lake.folder / preload.SOCKET))
        listening.listen()
        yield lake, listening


RAW = """
import socket
connection = socket.socket(socket.AF_UNIX)
connection.connect(os.path.join(os.environ["LAKE"], ".lakegate", preload.SOCKET))
pid = preload._send_order(connection, sys.argv[1:])
print(pid, flush=True)
"""


def test_nothing_runs_for_a_client_that_died_before_the_start(lake: _Lake, server: psutil.Process) -> None:
    for last in ("", "preload._receive = lambda _: os._exit(0)"):  # with and without the fork's process id
        gone = lake.start(last + RAW, code=lake.note)
        gone.communicate(timeout=60)
        assert gone.returncode == 0
    wait_until(lambda: not server.children())
    assert not lake.log.exists()


def test_a_fork_ends_with_its_supervisor_and_the_client_knows(lake: _Lake) -> None:
    running = lake.client("print(os.getppid(), flush=True); time.sleep(300)")
    assert running.stdout is not None
    supervisor = psutil.Process(int(running.stdout.readline()))
    (fork,) = supervisor.children()
    supervisor.kill()
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
    wait_until(lambda: is_gone(fork))


def test_a_fork_is_stopped_while_its_client_is(lake: _Lake) -> None:
    running = lake.client("print(os.getpid(), flush=True); time.sleep(300)")
    assert running.stdout is not None
    fork = psutil.Process(int(running.stdout.readline()))
    running.send_signal(signal.SIGSTOP)
    wait_until(lambda: fork.status() == psutil.STATUS_STOPPED)
    running.send_signal(signal.SIGCONT)
    wait_until(lambda: fork.status() != psutil.STATUS_STOPPED)
    running.send_signal(signal.SIGSTOP)
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: is_gone(fork))


def test_untyped_writes_from_another_control_group_are_not_handed_over(lake: _Lake) -> None:
    elsewhere = "preload._control_group = lambda: '0::/system.slice/load.service'; preload.main()"
    for command, where in (("ingest", "cold"), ("runs", "fork")):
        assert lake.start(elsewhere, command=command).communicate(timeout=60)[0] == where
    assert lake.start("preload.main()", command="ingest").communicate(timeout=60)[0] == "fork"
    typed = "preload._is_typed = lambda: True; " + elsewhere
    assert lake.start(typed, command="ingest").communicate(timeout=60)[0] == "fork"


def test_in_the_background_of_a_terminal_a_command_is_not_handed_over(lake: _Lake) -> None:
    assert lake.start("preload.os.tcgetpgrp = lambda _: 1; preload.main()").communicate(timeout=60)[0] == "cold"


def test_with_another_priority_a_command_is_not_handed_over(lake: _Lake) -> None:
    assert lake.run(SAY, "echo 500 >/proc/self/oom_score_adj;") == (0, "cold")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_with_a_closed_stream_a_command_is_not_handed_over(lake: _Lake, closed: str) -> None:
    code = f"os.write(os.open({str(lake.log)!r}, os.O_CREAT | os.O_WRONLY), where.encode())"
    assert lake.run(code, f"exec {closed};")[0] == 0
    assert lake.log.read_text() == "cold"


def test_a_hanging_process_is_not_waited_for(lake: _Lake, server: psutil.Process) -> None:
    server.suspend()
    try:
        assert lake.run(f"{lake.note}; {SAY}", patience=0.05) == (0, "cold")
    finally:
        server.resume()
    assert lake.run() == (0, "fork")  # after it checked the other descriptor
    wait_until(lambda: not server.children())
    assert lake.log.read_text() == "ran "


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_before_the_start_ends_a_command(
    unanswered: tuple[_Lake, socket.socket], number: int, code: int
) -> None:
    lake, listening = unanswered
    running = lake.client()
    with listening.accept()[0] as connection:
        assert connection.recv(1)
        running.send_signal(number)
        assert running.communicate(timeout=60)[0] == ""
    assert running.returncode == code


def test_a_signal_just_after_go_is_the_command_s(lake: _Lake) -> None:
    # It's pending before the fork has handlers for it.
    early = """
os.kill(pid, signal.SIGINT)
socket.send_fds(connection, [preload._GO], [0, 1, 2])
print(preload._receive(connection) >> 8)
"""
    running = lake.start(RAW + early, code="time.sleep(300)")
    assert running.communicate(timeout=60)[0].split()[1:] == ["130"]


def test_a_program_that_can_t_run_reports_why(lake: _Lake) -> None:
    running = lake.client("raise ValueError('no such thing')")
    _, told = running.communicate(timeout=60)
    assert running.returncode == 70
    assert "ValueError: no such thing" in told


def test_a_fork_inherits_no_ignored_signals_and_no_descriptors(lake: _Lake) -> None:
    code = (
        "print(where, [signal.getsignal(number) == signal.SIG_IGN for number in (1, 2, 3)], end=' ')"
        "; print(signal.pthread_sigmask(0, ()))"
        # not as one text: with that, it would run in a process of its own
        '; folder = os.path.join(os.sep, "proc", "self", "fd")'
        "; paths = [os.path.join(folder, one) for one in os.listdir(folder)]"
        "; print(sorted(os.path.basename(os.readlink(one)) for one in paths if os.path.exists(one)), flush=True)"
    )
    state, opened = lake.run(code)[1].splitlines()
    assert state == "fork [False, False, False] set()"
    assert "preload" not in opened


def test_a_variable_turns_it_off_immediately(lake: _Lake) -> None:
    assert lake.run() == (0, "fork")
    assert lake.run(LAKEGATE_LOCAL_PRELOAD="off") == (0, "cold")
    assert lake.run(GOOGLE_APPLICATION_CREDENTIALS="/dev/fd/63") == (0, "cold")
    assert lake.run(f"{SAY} #--file=/dev/fd/63") == (0, "cold")


@pytest.mark.parametrize("changed", ["lakegate.toml", "startup/sitecustomize.py"])
def test_changed_settings_or_programs_end_the_process(own: _Lake, changed: str) -> None:
    server = own.serve()
    (own.home / changed).touch()
    os.utime(own.home / changed, (1, 1))
    assert own.run() == (0, "cold")
    wait_until(lambda: is_gone(server))
    assert (own.folder / "preload.lock").read_bytes() == b""  # so that the next command leaves another one behind


def test_a_process_that_failed_is_retried_with_new_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = _Lake(tmp_path)
    loaded: list[int] = []

    def refuse(*_: object) -> None:
        raise PermissionError

    for name in ("signal", "umask"):
        monkeypatch.setattr(f"{'os' if name == 'umask' else 'signal'}.{name}", lambda *_: None)
    monkeypatch.setattr(preload, "_load", lambda: loaded.append(1))
    with monkeypatch.context() as no_sockets:
        no_sockets.setattr(socket.socket, "bind", refuse)
        with pytest.raises(PermissionError):
            preload.serve(tmp_path)
    assert not loaded
    monkeypatch.chdir(tmp_path)
    spawned: list[int] = []
    monkeypatch.setattr(process, "spawn", lambda *_, **__: spawned.append(1))
    monkeypatch.setenv("LAKEGATE_LOCAL_PRELOAD", "true")
    (lake.folder / "logs").mkdir()
    for handle in _locks(lake.folder):  # the failed process has ended by now
        os.close(handle)
    preload.leave_behind(["runs"], os.environ)
    assert not spawned
    os.utime(lake.folder / "stack.json", (1, 1))
    preload.leave_behind(["runs"], os.environ)
    assert spawned


def test_variables_that_libraries_set_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = _Lake(tmp_path)
    (lake.folder / "logs").mkdir()
    begun: list[dict[str, str]] = []
    monkeypatch.setattr(process, "spawn", lambda *_, env, **__: begun.append(env))
    ends: list[Callable[[], None] | None] = []
    monkeypatch.setattr("lakegate.cli.main.main", lambda *, leave_behind: ends.append(leave_behind))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEGATE_LOCAL_PRELOAD", "true")
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    monkeypatch.setattr(sys, "argv", ["lakegate", "ingest", "nyc.trips", "a.csv"])
    before = preload.surroundings()["variables"]
    preload.main()
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")  # as lakegate silences Spark's client
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    assert ends[0] is not None
    ends[0]()
    (found,) = begun
    assert not found.keys() & {"GRPC_VERBOSITY", "SPARK_CONNECT_MODE_ENABLED"}
    assert found.items() >= before.items()


def test_a_timer_s_command_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = _Lake(tmp_path)
    (lake.folder / "logs").mkdir()
    begun: list[tuple[str, ...]] = []
    monkeypatch.setattr(process, "spawn", lambda command, **_: begun.append(command))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEGATE_LOCAL_PRELOAD", "true")
    monkeypatch.setattr(preload, "_control_group", lambda pid="self": f"of {pid}")
    monkeypatch.setattr(preload, "_is_typed", lambda: False)
    preload.leave_behind(["ingest", "nyc.trips", "a.csv"], os.environ)
    assert not begun
    preload.leave_behind(["log"], os.environ)
    assert begun.pop()[-1] == str(tmp_path)
    monkeypatch.setattr(preload, "_is_typed", lambda: True)
    preload.leave_behind(["ingest", "nyc.trips", "a.csv"], os.environ)
    assert begun.pop()[-2:] == (str(tmp_path), "typed")
    monkeypatch.setattr(preload, "_is_typed", lambda: False)
    monkeypatch.setattr(preload, "_control_group", lambda _="self": "the servers'")
    preload.leave_behind(["ingest", "nyc.trips", "a.csv"], os.environ)
    assert begun.pop()[-1] == str(tmp_path)


def test_a_process_left_by_a_script_is_replaced_by_one_from_a_terminal(own: _Lake) -> None:
    server = own.serve()
    assert own.run(LC_ALL="C.UTF-8", LANG="x") == (0, "cold")
    assert own.run() == (0, "fork")
    typed = own.start("preload._is_typed = lambda: True; preload.main()", LC_ALL="C.UTF-8", LANG="x")
    assert typed.communicate(timeout=60)[0] == "cold"
    wait_until(lambda: is_gone(server))
    assert (own.folder / "preload.lock").read_bytes() == b""


def _locks(folder: Path) -> list[int]:
    held = [int(one.name) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [one for one in held if _leads_to(one, folder / "preload.lock")]


def _leads_to(number: int, path: Path) -> bool:
    with suppress(OSError):
        return Path(f"/proc/self/fd/{number}").readlink() == path
    return False


def test_a_fork_doesn_t_hold_the_lock_of_the_preloaded_process(own: _Lake) -> None:
    server = own.serve()
    running = own.client("print(1, flush=True); time.sleep(300)")
    assert running.stdout is not None
    running.stdout.readline()
    server.kill()
    wait_until(lambda: is_gone(server))
    with (own.folder / "preload.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    running.kill()
    running.communicate(timeout=60)
