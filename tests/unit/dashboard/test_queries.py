"""Queries of the dashboard: limits, stopping, an unavailable engine, and closing the lake when idle."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.dashboard.queries import Queries, Result
from lakegate.errors import EngineUnavailableError, QueryError
from lakegate.ports import Narrator
from lakegate.table import Query

_SOON_S = 20.0


class Frame:
    """The part of a DataFrame that a query needs; ``rows`` may wait, or fail."""

    def __init__(self, rows: Callable[[], pa.Table], most: int | None = None, session: Any = None) -> None:
        self.rows = rows
        self.most = most
        self.sparkSession = session

    def limit(self, rows: int) -> Frame:
        return Frame(self.rows, rows, self.sparkSession)


class Session:
    """The part of a session that reports a query's progress and stops it."""

    def __init__(self) -> None:
        self.report: Any = None
        self.interrupted = False

    def registerProgressHandler(self, report: Any) -> None:
        self.report = report

    def interruptTag(self, tag: str) -> None:
        self.interrupted = True

    def addTag(self, tag: str) -> None:
        pass

    removeTag = removeProgressHandler = addTag


class FakeLake:
    """Answers queries from a table, by statement."""

    def __init__(self, answers: dict[str, Callable[[], pa.Table]], session: Any = None) -> None:
        self.answers = answers
        self.session = session
        self.asked: list[tuple[str, Any]] = []
        self.closed = threading.Event()

    def query(self, sql: str, *, ref: str = "main", at: Any = None) -> Query:
        self.asked.append((ref, at))
        if sql not in self.answers:
            raise QueryError(f"A query can only read, but this is a {sql} statement.")
        return Query(
            Frame(self.answers[sql], session=self.session),
            lambda frame: frame.rows().slice(0, frame.most),
            lambda _: iter(()),
        )

    def close(self) -> None:
        self.closed.set()

    def reconnect(self) -> None:
        pass


def numbers(count: int) -> Callable[[], pa.Table]:
    return lambda: pa.table({"n": range(count)})


def started(*lakes: Any, **options: Any) -> Queries:
    """Return queries that open these lakes, one after the other."""
    opened = iter(lakes)
    return Queries(lambda narrator: next(opened), **options)


def test_a_result_has_as_many_rows_as_were_asked_for() -> None:
    lake = FakeLake({"all": numbers(50)})
    queries = started(lake)
    job = queries.start("all", ref="wap/x", at="2026-01-31T07:00:00Z", limit=49)
    assert job.wait(_SOON_S)
    assert job.result is not None
    assert (job.state, job.result.table.num_rows, job.result.cut) == ("done", 49, True)
    assert lake.asked == [("wap/x", "2026-01-31T07:00:00Z")]
    whole = queries.start("all", limit=50)
    assert whole.wait(_SOON_S)
    assert whole.result is not None
    assert (whole.result.table.num_rows, whole.result.cut) == (50, False)


def test_what_may_not_run_says_why_and_the_lake_stays() -> None:
    lake = FakeLake({})
    queries = started(lake)
    job = queries.start("DROP")
    assert job.wait(_SOON_S)
    assert (job.state, str(job.error)) == ("failed", "A query can only read, but this is a DROP statement.")
    assert queries.is_open
    queries.close()
    assert lake.closed.is_set()


def test_an_engine_that_is_away_is_asked_for_again_by_the_next_query() -> None:
    def away() -> pa.Table:
        raise EngineUnavailableError("Lost the connection to Spark.", hint="lakegate status")

    lakes = [FakeLake({"n": away}), FakeLake({"n": numbers(1)})]
    queries = started(*lakes)
    lost = queries.start("n")
    assert lost.wait(_SOON_S)
    assert (lost.state, getattr(lost.error, "hint", None)) == ("failed", "lakegate status")
    assert lakes[0].closed.wait(_SOON_S)
    again = queries.start("n")
    assert again.wait(_SOON_S)
    assert again.state == "done"
    queries.close()


def test_a_failure_of_any_kind_is_told_and_without_secrets() -> None:
    def broken() -> pa.Table:
        raise ZeroDivisionError("at https://host/?token=abcdef")

    job = started(FakeLake({"n": broken})).start("n")
    assert job.wait(_SOON_S)
    assert str(job.error) == "The query failed: ZeroDivisionError: at https://host/?token=…"


def test_a_stopped_query_ends_at_once_and_has_no_result() -> None:
    reading, may_end = threading.Event(), threading.Event()

    def slow() -> pa.Table:
        reading.set()
        may_end.wait(_SOON_S)
        return pa.table({"n": [1]})

    queries = started(FakeLake({"slow": slow}))
    job = queries.start("slow")
    assert reading.wait(_SOON_S)
    assert job.doing == "Reading rows"
    job.stop()
    assert (job.state, job.result) == ("stopped", None)
    may_end.set()
    assert job.wait(_SOON_S)
    assert job.state == "stopped"


def test_what_nobody_waits_for_any_more_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.spark.sessions.is_connect", lambda _: True)
    session, reading = Session(), threading.Event()

    def slow() -> pa.Table:
        reading.wait(_SOON_S)
        return pa.table({"n": [1]})

    queries = started(FakeLake({"slow": slow}, session))
    job = queries.start("slow")
    while session.report is None:
        job.wait(0.01)
    session.report([])
    assert job.state == "running"
    monkeypatch.setattr("lakegate.dashboard.queries._ABANDONED_AFTER_S", -1.0)
    session.report([])
    reading.set()
    assert (job.state, session.interrupted) == ("stopped", True)


def test_the_start_of_spark_shows_in_the_query_that_waits_for_it() -> None:
    seen = []

    def open_lake(narrator: Narrator) -> Any:
        with narrator.step("Starting Spark") as step:
            step.progress(3, 10, "files")
            seen.append((job.doing, job.progress))
        seen.append((job.doing, job.progress))
        return FakeLake({"n": numbers(1)})

    ready = threading.Event()

    def wait_and_open(narrator: Narrator) -> Any:
        assert ready.wait(_SOON_S)
        return open_lake(narrator)

    queries = Queries(wait_and_open)
    job = queries.start("n")
    ready.set()
    assert job.wait(_SOON_S)
    assert seen == [("Starting Spark", (3, 10)), ("Planning the query", None)]


def test_spark_is_let_go_when_nobody_queries() -> None:
    lake = FakeLake({"n": numbers(1)})
    queries = started(lake, idle_s=0.0)
    assert queries.start("n").wait(_SOON_S)
    assert lake.closed.wait(_SOON_S)
    assert not queries.is_open


@pytest.fixture
def hostile() -> Result:
    rows = pa.table(
        [
            pa.array(["x" * 10_000, None]),
            pa.array([b"\xff\x00", b""]),
            pa.array([4_000_000, 0], pa.date32()),
            pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
        ],
        names=["🚕", "🚕 (2)", "day", "nested"],
    )
    return Result(rows, cut=False, seconds=0.1)


def test_a_page_holds_what_can_be_shown(hostile: Result) -> None:
    [first] = hostile.page(0, 1)
    assert first == {"🚕": "x" * 300 + "…", "🚕 (2)": "ff00", "day": "+12921-08-18", "nested": {"a": 1}}
    [second] = hostile.page(1, 1)
    assert second == {"🚕": None, "🚕 (2)": "", "day": second["day"], "nested": None}
    assert hostile.page(2, 1) == []


def test_downloads_hold_all_of_it(hostile: Result) -> None:
    head, first, _ = csv.reader(io.StringIO(hostile.to_csv().decode()))
    assert head == ["🚕", "🚕 (2)", "day", "nested"]
    assert first == ["x" * 10_000, "/wA=", "+12921-08-18", '{"a": 1}']
    assert pq.read_table(pa.BufferReader(hostile.to_parquet())).equals(hostile.table)


def test_what_parquet_has_no_type_for_is_said() -> None:
    unions = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    with pytest.raises(QueryError, match="Parquet can't hold this result"):
        Result(pa.table({"u": unions}), cut=False, seconds=0.0).to_parquet()
