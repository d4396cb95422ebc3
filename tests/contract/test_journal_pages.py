"""Pages of runs, checks and files are the same in every database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from lakegate.journal.pages import RunFilter
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run
from support.journals import START, Actor, file, run
from support.ledger_support import save_with_commits


def loaded(number: int, *files: SourceFile, table: str = "nyc.trips", fails: bool = False, **values: Any) -> Run:
    run_id, verdict = f"r{number:02}", "fail" if fails else "pass"
    result = CheckResult(
        name="n", check="not_null(x)", columns=("x",), severity="error", verdict=verdict, failing_rows=int(fails),
        total_rows=2, evidence="scan", examples=({"x": None},) if fails else (),
    )  # fmt: skip
    report = AuditReport(
        run_id=run_id, table=table, branch=f"b{number}", metadata_location="m", rows=2, results=(result,), seconds=0.1
    )
    batch = Batch(format="parquet", files=files, columns=())
    request = IngestRequest(run_id=run_id, table=TableIdentifier.parse(table), branch=f"b{number}", batch=batch)
    return run(number, tables=(table,), request=request, reports=(report,), **values)


def found(journal: Actor, limit: int = 50, **wanted: Any) -> Sequence[str]:
    return [one.run_id for one in journal.pages.runs(RunFilter(**wanted), limit=limit)[0]]


def test_runs_are_found_by_all_that_is_asked(journal: Actor) -> None:
    odd = SourceFile(uri="file:///in/10%25%20OFF%20%C3%A9.csv", size_bytes=1, version="1", rows=1)
    journal.save(loaded(1, file("a.parquet"), status="published", orchestrator="prefect"))
    journal.save(loaded(2, odd, status="rejected", orchestrator="cli", fails=True))
    journal.save(run(3, tables=("nyc.trips", "lab.t"), kind="transaction", status="published"))
    assert found(journal) == ["r03", "r02", "r01"]
    assert found(journal, status="published", table="nyc.trips") == ["r03", "r01"]
    assert found(journal, orchestrator="prefect") == ["r01"]
    assert found(journal, kind="transaction") == ["r03"]
    assert found(journal, since=START + timedelta(seconds=2), until=START + timedelta(seconds=3)) == ["r02"]
    assert found(journal, run_id="r0") == ["r03", "r02", "r01"]
    assert found(journal, file="A.PARQUET") == ["r01"]
    assert found(journal, file="10% off é") == ["r02"]
    assert found(journal, file="r0") == []
    assert found(journal, file="r02", or_id=True) == ["r02"]
    assert found(journal, file="trips", or_id=True) == found(journal, file="trips")
    assert found(journal, file="not_null") == found(journal, file="a%t") == found(journal, file="a_p") == []


def test_a_page_goes_on_where_the_last_one_ended(journal: Actor) -> None:
    for number in range(5):
        journal.save(run(number, started_at=START))
    first, place = journal.pages.runs(RunFilter(), limit=3)
    rest, end = journal.pages.runs(RunFilter(), limit=3, after=place)
    assert [one.run_id for one in (*first, *rest)] == ["r04", "r03", "r02", "r01", "r00"]
    assert list(journal.pages.each(RunFilter(), at_once=3)) == [*first, *rest]
    assert end is None


def test_a_rebuilt_journal_knows_files_by_their_claims(journal: Actor) -> None:
    journal.claim("r01", "nyc.trips", [file("a.parquet"), file("b.parquet")])
    assert found(journal, file="b.parquet") == ["r01"]
    assert found(journal, file="c.parquet") == []


def test_files_are_newest_first(journal: Actor) -> None:
    journal.claim("r01", "nyc.trips", [file("a.parquet"), file("b.parquet")])
    journal.claim("r02", "lab.t", [file("b.parquet")])
    records = journal.pages.files(limit=10)
    assert [(one.table, one.uri[-9:], one.run_id, one.published) for one in records] == [
        ("lab.t", "b.parquet", "r02", False),
        ("nyc.trips", "b.parquet", "r01", False),
        ("nyc.trips", "a.parquet", "r01", False),
    ]
    older = journal.pages.files(limit=10, before=records[1].number)
    assert [one.uri[-9:] for one in older] == ["a.parquet"]


def test_tables_and_their_newest_runs(journal: Actor) -> None:
    published, revert = loaded(1, status="published"), loaded(3, table="Lab.t", status="published", kind="revert")
    save_with_commits(journal.journal, published, loaded(2, status="rejected", fails=True), revert)
    pages = journal.pages
    assert pages.tables(limit=10) == ["Lab.t", "nyc.trips"]
    assert pages.tables(limit=1) == ["Lab.t"]
    assert [one.run_id for one in pages.newest_of(["nyc.trips"], limit=5)["nyc.trips"]] == ["r02", "r01"]
    assert {table: one.run_id for table, one in pages.last_publishes(["nyc.trips", "Lab.t"]).items()} == {
        "nyc.trips": "r01"
    }
    assert [(one.run_id, one.verdict) for one in pages.checks("nyc.trips", ["r01", "r02"])] == [
        ("r01", "pass"),
        ("r02", "fail"),
    ]
    assert {branch: one.run_id for branch, one in pages.by_branch(["b1", "b3", "b9"]).items()} == {
        "b1": "r01",
        "b3": "r03",
    }
    assert {key: list(value) for key, value in pages.tables_of(["r01", "r03"]).items()} == {
        "r01": ["nyc.trips"],
        "r03": ["Lab.t"],
    }
    assert [one.run_id for one in pages.newest("published", limit=5)] == ["r03", "r01"]
    assert set(pages.lines(["r01", "nowhere"])) == set(pages.runs_of(["r01", "nowhere"])) == {"r01"}
