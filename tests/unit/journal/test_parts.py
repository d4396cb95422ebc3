"""Who holds a lease, which settings open a journal, and file locks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, select, text

from lakegate.config import JournalSettings, load_settings
from lakegate.errors import ConfigurationError
from lakegate.journal import holder as holders
from lakegate.journal.database import FileLocks, SqliteDatabase
from lakegate.journal.factory import open_journal, open_sqlite
from lakegate.journal.holder import ProcessHolder
from lakegate.journal.schema import EVENTS


def test_this_process_is_alive() -> None:
    holder = ProcessHolder()
    assert holder.is_alive(holder.identity()) is True


def test_a_pid_used_again_is_not_the_process_it_was() -> None:
    host, pid, started = ProcessHolder().identity().split(":")
    assert ProcessHolder().is_alive(f"{host}:{pid}:{int(started) - 1}") is False


def test_a_process_of_another_user_that_is_hidden_may_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with /proc mounted by ``hidepid=2``."""
    host, pid, started = ProcessHolder().identity().split(":")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").touch()
    monkeypatch.setattr(holders, "_PROC", tmp_path)
    assert ProcessHolder().is_alive(f"{host}:{pid}:{started}") is False  # of our own, which cannot be hidden

    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert ProcessHolder().is_alive(f"{host}:{pid}:{started}") is None


def test_a_process_that_ended_is_dead_even_before_its_parent_waits_for_it() -> None:
    host = ProcessHolder().identity().partition(":")[0]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        identity = f"{host}:{child.pid}:{holders.process_start(child.pid)}"
        assert ProcessHolder().is_alive(identity) is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
        assert ProcessHolder().is_alive(identity) is False
    assert ProcessHolder().is_alive(identity) is False


@pytest.mark.parametrize("identity", ["", "x", "x:y:z", "other:1:1"])
def test_nothing_is_known_of_processes_on_other_hosts(identity: str) -> None:
    assert ProcessHolder().is_alive(identity) is None


def test_without_proc_psutil_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(holders, "_PROC", tmp_path)
    holder = ProcessHolder()
    assert holder.is_alive(holder.identity()) is True
    host, pid, _ = holder.identity().split(":")
    assert holder.is_alive(f"{host}:{pid}:1.00") is False


def test_the_journal_is_in_the_projects_folder(tmp_path: Path) -> None:
    with closing(open_journal(JournalSettings(), tmp_path)) as journal:
        assert not journal.runs()
    assert (tmp_path / ".lakegate" / "journal.db").is_file()


def test_a_relative_path_starts_at_the_project(tmp_path: Path) -> None:
    open_journal(JournalSettings(url="sqlite:///deep/runs.db"), tmp_path).close()
    assert (tmp_path / "deep" / "runs.db").is_file()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@host/db",
        "postgresql://user:@host/db",
        "postgresql+pg8000://user:s3@cret@host/db",
        "postgresql://host/db?password=s3cret",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"journal\.password") as raised:
        load_settings(tmp_path, env={"LAKEGATE_JOURNAL_URL": url})
    assert "cret" not in f"{raised.value} {raised.value.hint} {raised.value.context}"
    unchecked = JournalSettings.model_construct(url=url, password=None, lease_s=1.0)
    with pytest.raises(ConfigurationError, match=r"contains a password|isn't the URL") as raised:
        open_journal(unchecked, tmp_path)
    assert "cret" not in f"{raised.value} {raised.value.hint} {raised.value.context}"


@pytest.mark.parametrize("url", ["", "journal.db", "mysql://host/db", "postgresql+psycopg://h/d"])
def test_a_journal_in_another_database_is_refused_with_the_settings(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'journal\.url': must be postgresql://user@host:5432/database or"):
        load_settings(tmp_path, env={}, flags={"journal.url": url})


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql://host:port/db"])
def test_what_is_no_url_of_a_journal_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"journal\.url") as raised:
        open_journal(JournalSettings(url=url), tmp_path)
    assert "postgresql://user@host:5432/database" in str(raised.value.hint)


def test_the_password_comes_by_reference(tmp_path: Path) -> None:
    settings = JournalSettings(url="postgresql://user@host/db", password="s3cret")
    with pytest.raises(ConfigurationError, match=r"journal\.password") as raised:
        open_journal(settings, tmp_path)
    assert "s3cret" not in f"{raised.value} {raised.value.hint}"


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pg8000", None)
    with pytest.raises(ConfigurationError, match="driver") as raised:
        open_journal(JournalSettings(url="postgresql://user@127.0.0.1:1/db"), tmp_path)
    assert raised.value.hint == "pip install 'lakegate[postgres]'"


def test_a_waiter_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    locks, other = FileLocks(tmp_path), FileLocks(tmp_path)
    waiting, got = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        with other.lock("x", timeout_s=120) as ours:
            if ours:
                got.set()

    thread = threading.Thread(target=wait)
    with locks.lock("x", timeout_s=0):
        thread.start()
        assert waiting.wait(120)
        assert not got.is_set()
    thread.join(120)
    assert got.is_set()


def test_a_waiter_that_timed_out_blocks_nobody(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    with locks.lock("x", timeout_s=0), locks.lock("x", timeout_s=0.01) as late:
        assert not late
    with locks.lock("x", timeout_s=10) as ours:
        assert ours


def test_without_a_lock_file_there_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with FileLocks(tmp_path / "file").lock("x", timeout_s=0) as ours:
        assert not ours


def test_rows_that_are_too_long_for_one_parameter_come_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakegate.journal.database._LONGEST_JSON", 2_000)
    runs = [f"r{at}" * length for at, length in enumerate((9, 9, 5_000, 9, 900, 900, 900))]
    open_sqlite(tmp_path / "journal.db").close()
    with closing(SqliteDatabase(tmp_path / "journal.db")) as database:
        sent: list[str] = []
        event.listen(database.engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
        with database.writing() as tx:
            tx.insert(EVENTS, [("main", f"c{at}", run_id, None) for at, run_id in enumerate(runs)])
            assert list(tx.scalars(select(EVENTS.c.run_id).order_by(text("rowid")))) == runs
    assert sum(statement.startswith("INSERT") for statement in sent) > 1
