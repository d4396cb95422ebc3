"""Databases that are locked, away, of another format or something else."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url, text
from sqlalchemy.event import listen

from lakegate.config import JournalSettings
from lakegate.errors import ConfigurationError, InputError, RetryableError
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.factory import open_journal, open_postgres, open_sqlite
from lakegate.journal.journal import Journal
from lakegate.journal.postgres import PostgresDatabase
from lakegate.journal.schema import FORMAT
from lakegate.model.run import RunError
from support.journals import START, Actor, empty, file, run
from support.ledger_support import past, said
from support.postgres import USER, PostgresServer
from support.tls_proxy import Authority

on_postgres = pytest.mark.xdist_group("postgres")


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    empty(postgres)
    return postgres


@pytest.fixture
def shared(server: PostgresServer) -> Iterator[Actor]:
    made = Actor(open_postgres(make_url(server.url).set(password=server.password)))
    yield made
    made.close()


def end_sessions(server: PostgresServer) -> None:
    server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def test_runs_outlive_the_process_in_sqlite(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with closing(open_sqlite(tmp_path / "journal.db")) as journal:
            seen.append(journal.get("r01"))
            journal.save(run(1))
    assert seen == [None, run(1)]


def test_a_file_that_is_no_journal_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_text("this is not a database, but it is long enough to be read as one" * 20)
    with pytest.raises(InputError, match="a lakegate journal"):
        open_sqlite(path)


@pytest.mark.parametrize("table", ["people (name)", "runs (id)"])
def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path, table: str) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table}")
    with pytest.raises(InputError, match="a lakegate journal: it has other tables"):
        open_sqlite(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)


@pytest.mark.parametrize("name", ["what?", "50%41", "a#b", "x?mode=ro", "ü b"])
def test_a_journal_is_in_the_folder_of_its_path_however_that_is_spelled(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "journal.db"
    with closing(open_sqlite(path)) as journal:
        journal.save(run(1))
        assert [one.name for one in tmp_path.iterdir()] == [name]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT run_id FROM runs").fetchone() == ("r01",)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"Can't create the journal's folder .*file/deep"):
        open_sqlite(tmp_path / "file" / "deep" / "journal.db")


def test_a_journal_that_was_replaced_is_used_from_then_on(tmp_path: Path) -> None:
    """For instance, by a backup, or anew after somebody moved it away. Others use the new one, too."""
    path = tmp_path / "journal.db"
    with closing(open_sqlite(path)) as living:
        living.save(run(1))
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"{path.name}{suffix}").rename(tmp_path / f"old{suffix}")
        assert living.get("r01") == run(1)
        with closing(open_sqlite(path)) as other:
            living.save(run(2))
            assert other.get("r02") == run(2)
            assert living.get("r01") is None


def test_a_file_locked_for_too_long_is_retryable_and_usable_later(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(Actor(Journal(SqliteDatabase(path, busy_timeout_s=0.05)))) as journal:
        journal.save(run(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RetryableError, match=r"journal\.db isn't available: database is locked"):
                journal.claim("r01", "nyc.trips", [file("a")])
            assert journal.get("r01") == run(1)  # readers don't wait for writers
            other.execute("ROLLBACK")
        assert journal.claim("r01", "nyc.trips", [file("a")]).claimed


def test_a_full_disk_and_a_file_that_may_not_be_opened_are_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    database = SqliteDatabase(path)
    with closing(Actor(Journal(database))) as journal:
        journal.save(run(1))
        database.close()
        listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
        with pytest.raises(RetryableError, match=r"disk with the journal .*journal\.db is full") as full:
            journal.save(run(2, error=RunError(code="x", message="y" * 100_000)))
        assert "Free some space" in str(full.value.hint)
    (tmp_path / "folder.db").mkdir()
    with (
        pytest.raises(ConfigurationError, match=r"folder\.db can't be opened") as denied,
        closing(open_sqlite(tmp_path / "folder.db")) as journal,
    ):
        journal.get("r01")
    assert "permissions" in str(denied.value.hint)


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(Actor(open_sqlite(path))) as journal:
        journal.begin(run(1))
        journal.claim("r01", "nyc.trips", [file("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
            with pytest.raises(RetryableError, match="disk is full"):
                journal.end(run(1, status="published"))
            other.execute("DROP TRIGGER full")
        assert journal.renew("r01")
        assert journal.claim("r02", "nyc.trips", [file("a")]).busy


def test_a_journal_of_another_format_is_refused_naming_both(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    open_sqlite(path).close()
    for change, theirs in (
        ("UPDATE journal_format SET number = 99", "is in format 99"),
        ("DROP TABLE journal_format", "is in an unknown format"),
    ):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(change)
        with pytest.raises(
            ConfigurationError, match=rf"{theirs}; this lakegate reads and writes format {FORMAT}"
        ) as no:
            open_sqlite(path)
        assert "lakegate admin journal rebuild" in str(no.value.hint)


def test_a_clock_that_jumps_back_takes_no_run_away_and_one_that_jumps_ahead_only_until_it_is_renewed(
    tmp_path: Path,
) -> None:
    now = [START]
    database = SqliteDatabase(tmp_path / "journal.db", clock=lambda: now[0])
    with closing(Actor(Journal(database))) as journal:
        journal.begin(run(1))
        for jump in (timedelta(days=-400), timedelta(seconds=59)):
            now[0] = START + jump
            assert not journal.abandoned()
        now[0] = START + timedelta(days=400)
        assert [one.run_id for one in journal.abandoned()] == ["r01"]
        assert journal.renew("r01")
        assert not journal.abandoned()


@on_postgres
def test_leases_in_postgres_go_by_the_servers_clock(server: PostgresServer, shared: Actor) -> None:
    before = server.run("SELECT clock_timestamp()")[0][0]
    shared.begin(run(1))
    (renewed, expires), *_ = server.run("SELECT renewed_at, expires_at FROM lakegate.leases")
    after = server.run("SELECT clock_timestamp()")[0][0]
    assert isinstance(before, datetime)
    assert isinstance(after, datetime)
    assert before <= datetime.fromisoformat(str(renewed)) <= after
    assert datetime.fromisoformat(str(expires)) - datetime.fromisoformat(str(renewed)) == timedelta(seconds=60)


@on_postgres
def test_a_postgres_gone_in_mid_run_is_retryable_and_the_next_call_finds_it_again(
    server: PostgresServer, shared: Actor
) -> None:
    shared.begin(run(1))
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(
                RetryableError,
                match=rf"postgresql://{USER}@127\.0\.0\.1:\d+/postgres isn't available: Connection refused\.$",
            ) as raised:
                shared.renew("r01")
            assert server.password not in f"{raised.value} {raised.value.hint} {raised.value.__cause__}"
        with shared.lock("x", timeout_s=0.1) as ours:
            assert not ours
    finally:
        server.start()
    assert shared.renew("r01")


@on_postgres
def test_a_session_on_a_server_that_is_read_only_is_replaced(server: PostgresServer, shared: Actor) -> None:
    """As after a failover, when a name still meant the server that was the primary before."""
    shared.begin(run(1))
    server.run("ALTER DATABASE postgres SET default_transaction_read_only TO on")
    try:
        end_sessions(server)
        with pytest.raises(RetryableError, match="read-only"):
            shared.renew("r01")
    finally:
        server.run(
            "SET default_transaction_read_only TO off", "ALTER DATABASE postgres RESET default_transaction_read_only"
        )
    assert shared.renew("r01")


@on_postgres
def test_a_process_opens_so_many_connections_and_no_more(server: PostgresServer) -> None:
    """Else a hundred calls of the function use up what the database has, and Nessie gets none."""
    url = make_url(server.url).set(password=server.password)
    database = PostgresDatabase(url, tls=False, max_connections=4)
    seen: list[int] = []
    ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lakegate'"
    before = [str(pid) for (pid,) in server.run(ours)]  # those of the test before may take a moment to go

    def work(number: int) -> bool:
        with database.named_lock(f"turn {number}", timeout_s=5) as is_ours, database.reading() as tx:
            tx.execute(text("SELECT pg_sleep(0.2)"))
            seen.append(len({str(pid) for pid in tx.scalars(text(ours))}.difference(before)))
        return is_ours

    with closing(database), ThreadPoolExecutor(12) as pool:
        got = list(pool.map(work, range(12)))
        assert any(got)  # whoever gets no connection for its lock goes on without
        assert len(seen) == 12
        assert max(seen) <= 4
        with database.named_lock("a", timeout_s=5) as first, database.named_lock("b", timeout_s=5) as second:
            assert (first, second) == (True, False)
            # Who only asks needs no connection of those, nor a new one.
            assert (database.is_locked("a"), database.is_locked("b")) == (True, False)


@on_postgres
def test_a_lock_held_for_too_long_in_postgres_is_retryable(server: PostgresServer, shared: Actor) -> None:
    url = make_url(server.url).set(password=server.password)
    shared.begin(run(1))
    database = PostgresDatabase(url, busy_timeout_s=0.05)
    with closing(Actor(Journal(database))) as journal:
        with database.writing() as tx:
            tx.lock("run r01")
            with pytest.raises(RetryableError, match="lock timeout"):
                journal.journal.end(run(1), shared.tokens["r01"])
        journal.journal.end(run(1), shared.tokens["r01"])


@on_postgres
def test_what_else_is_in_the_database_is_left_alone(server: PostgresServer, shared: Actor) -> None:
    del shared
    server.run("CREATE TABLE IF NOT EXISTS public.runs (id int)", "INSERT INTO public.runs VALUES (7)")
    with closing(open_postgres(make_url(server.url).set(password=server.password))) as journal:
        journal.save(run(1))
    assert server.run("SELECT id FROM public.runs") == [(7,)]
    server.run("DROP TABLE public.runs")


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Callable[[str], URL]]:
    """Return the URL of a new database with these options."""
    server.run("DROP DATABASE IF EXISTS other")

    def make(options: str) -> URL:
        server.run(f"CREATE DATABASE other {options}")
        return make_url(server.url).set(password=server.password, database="other")

    yield make
    server.run("DROP DATABASE IF EXISTS other WITH (FORCE)")


@on_postgres
def test_a_user_without_rights_to_the_schema_is_told_so(server: PostgresServer, shared: Actor) -> None:
    del shared
    server.run("DROP ROLE IF EXISTS stranger", "CREATE ROLE stranger LOGIN PASSWORD 'x'")
    with pytest.raises(ConfigurationError, match="schema") as raised:
        open_postgres(make_url(server.url).set(username="stranger", password="x"), tls=False)
    assert "GRANT" in str(raised.value.hint)
    server.run("DROP ROLE stranger")


@on_postgres
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_every_text_is_refused_before_any_run(
    database: Callable[[str], URL], encoding: str
) -> None:
    url = database(f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(ConfigurationError, match=f"encoding is {encoding}") as raised:
        open_postgres(url, tls=False)
    assert "--encoding=UTF8" in str(raised.value.hint)


@on_postgres
@pytest.mark.parametrize(("change", "message"), [({"password": "wrong"}, "password"), ({"database": "no"}, "exist")])
def test_a_database_that_lets_nobody_in_is_a_matter_of_configuration(
    server: PostgresServer, change: dict[str, str], message: str
) -> None:
    url = make_url(server.url).set(password=server.password)
    url = url.set(password=change.get("password"), database=change.get("database"))
    with pytest.raises(ConfigurationError, match=message) as raised:
        open_postgres(url)
    assert raised.value.hint
    assert server.password not in str(raised.value)


def test_a_document_that_cannot_be_read_hides_no_other_run(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(open_sqlite(path)) as journal:
        journal.save(run(1))
        journal.save(run(2))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE runs SET document = json_set(document, '$.invented', 1) WHERE run_id = 'r01'")
        first, second = journal.runs()[1], journal.runs()[0]
        # Nor is what could be read of it stored in its place.
        written = _document(path)
        journal.amend(first, branch_kept=True)
        journal.note_notifications("r01", [])
        journal.record("main", [past("c1", said("r01", "nyc.trips"))], "c1")
        assert _document(path) == written
    assert second == run(2)
    assert first.model_dump() == run(1, detail=first.detail).model_dump()
    assert "can't read the rest" in str(first.detail)


def _document(path: Path) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT document FROM runs WHERE run_id = 'r01'").fetchone()


@on_postgres
def test_tls_is_checked_when_that_is_asked_for(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_PASSWORD", postgres.password)
    mine, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    settings = JournalSettings(url=postgres.url.replace("127.0.0.1", "localhost"), password="env:JOURNAL_PASSWORD")

    def is_encrypted(**how: object) -> bool:
        with closing(open_journal(settings.model_copy(update=how), tmp_path)):
            ours = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'lakegate'"
            found = postgres.run(f"SELECT count(*) {ours}")
        return bool(found[0][0])

    with pytest.raises(ConfigurationError, match="doesn't support TLS"):
        is_encrypted(tls=True)
    with postgres.tls(mine.pair()):
        assert [is_encrypted(), is_encrypted(tls=False), is_encrypted(ca_file=mine.file)] == [True, False, True]
        with pytest.raises(ConfigurationError, match=r"certificate of the journal .* isn't trusted") as caught:
            is_encrypted(ca_file=others.file)
    assert "journal.ca_file" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match="is false"):
        is_encrypted(tls=False, ca_file=mine.file)
    with pytest.raises(ConfigurationError, match="can't be read"):
        is_encrypted(ca_file=tmp_path / "none.pem")


def test_opening_a_journal_again_leaves_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(open_sqlite(path)) as first, closing(open_sqlite(path)) as second:
        first.runs()
        second.runs()
        beside = path.with_name("journal.db-wal").stat().st_ino
        # Who believes to be the last one takes the log away from under those who go on to write to it.
        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM sqlite_master').fetchall()"
        subprocess.run([sys.executable, "-c", script, str(path)], check=True)
        first.save(run(1))

        assert path.with_name("journal.db-wal").stat().st_ino == beside
    with closing(open_sqlite(path)) as later:
        assert [known.run_id for known in later.runs()] == [run(1).run_id]
