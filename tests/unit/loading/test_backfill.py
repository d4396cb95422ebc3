"""Backfills: their chunks, and their parallel execution."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakegate.errors import (
    CatalogUnavailableError,
    EngineError,
    InputError,
    LakegateError,
    OutcomeUnknownError,
    SourceError,
)
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, BackfillPlan, BackfillReport, ChunkResult
from lakegate.model.request import IngestOptions
from support.backfill_support import ROWS, Archive, day_files


@pytest.fixture
def archive() -> Archive:
    return Archive()


def backfill(archive: Archive, *paths: Path | str, **options: Any) -> Backfill:
    """Return a backfill of ``paths``: patterns, and folders of files that are named by the day."""
    since, until = options.pop("since", None), options.pop("until", None)
    dated = [f"{path}/**/*_%Y-%m-%d.parquet" if isinstance(path, Path) else path for path in paths]
    return Backfill(archive.lake, "nyc.trips", dated, since, until, **options)


def run_all(archive: Archive, folder: Path, **options: Any) -> BackfillReport:
    work = backfill(archive, folder)
    return work.run_all(work.plan(), **options)


def outcomes(report: BackfillReport) -> dict[str, str]:
    return {one.chunk[-2:]: one.outcome for one in report.results}


def names(plan: BackfillPlan) -> list[str]:
    return [chunk.name for chunk in plan.chunks]


# The plan


def test_the_plan_has_a_chunk_for_each_day_of_the_range_oldest_first(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path / "b", 3, 1, 9)
    day_files(tmp_path / "a", 3, 2)
    archive.published = {"green_2024-01-02.parquet": "r0"}
    plan = backfill(archive, tmp_path, since="2024-01-02", until="2024-01-08").plan()
    assert names(plan) == ["2024-01-02", "2024-01-03"]
    assert [file.state for chunk in plan.chunks for file in chunk.files] == ["published", "new", "new"]
    assert [chunk.name for chunk in plan.to_do] == ["2024-01-03"]
    assert plan.to_do[0].size_bytes == 2 * len("green_2024-01-03.parquet")
    assert not plan.creates
    assert BackfillPlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_file_partly_in_the_range_is_ingested_whole_and_reported(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "green_2024-01.parquet").touch()
    (tmp_path / "green_2024-02.parquet").touch()
    monthly = f"{tmp_path}/green_%Y-%m.parquet"
    plan = backfill(archive, monthly, since="2024-01-20", until="2024-01-25").plan()
    assert names(plan) == ["2024-01"]
    assert plan.beyond == 1
    assert backfill(archive, monthly, since="2024-01", until="2024-02").plan().beyond == 0


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("day", ["2024-01-01", "2024-01-02", "2024-02-01", "2024-03"]),
        ("month", ["2024-01", "2024-02", "2024-03"]),
        ("year", ["2024"]),
        ("file", [f"green_2024-{day}.parquet" for day in ("01-01", "01-02", "02-01", "03")]),
        ("3 files", ["2024-01-01 to 2024-02-01", "2024-03"]),
        ("1", ["2024-01-01", "2024-01-02", "2024-02-01", "2024-03"]),
        (None, ["2024-01-01", "2024-01-02", "2024-02-01", "2024-03"]),
    ],
)
def test_chunks(archive: Archive, tmp_path: Path, chunk: str | None, expected: list[str]) -> None:
    day_files(tmp_path, 1, 2)
    day_files(tmp_path, 1, month="2024-02")
    (tmp_path / "green_2024-03.parquet").touch()
    assert names(backfill(archive, tmp_path, f"{tmp_path}/green_%Y-%m.parquet", chunk=chunk).plan()) == expected


def test_a_template_marks_the_date(archive: Archive, tmp_path: Path) -> None:
    for name in ("2024/01/exported_2025-05-05.parquet", "2024/02/exported_2025-05-05.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    template = f"{tmp_path}/%Y/%m/*.parquet"
    assert names(backfill(archive, template, since="2024-02").plan()) == ["2024-02"]
    assert names(backfill(archive, f"{tmp_path}/**/*_%Y-%m-%d.parquet").plan()) == ["2025-05-05"]


def test_by_modified_uses_modification_times(archive: Archive, tmp_path: Path) -> None:
    for name, second in (("a.parquet", 0), ("b.parquet", 86_400), ("c.parquet", 86_401)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    assert names(backfill(archive, str(tmp_path), by="modified").plan()) == ["1970-01-01", "1970-01-02"]
    assert names(backfill(archive, str(tmp_path), by="modified", until="1970").plan()) == ["1970-01-01", "1970-01-02"]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("", "doesn't say where the date"), ("/trips*%Y/x.parquet", r"trips_0000/x\.parquet' has no date where")],
)
def test_a_file_without_a_date_is_named(archive: Archive, tmp_path: Path, pattern: str, told: str) -> None:
    (tmp_path / "trips_0000").mkdir()
    (tmp_path / "trips_0000" / "x.parquet").touch()
    with pytest.raises(InputError, match=told) as caught:
        backfill(archive, f"{tmp_path}{pattern}").plan()
    assert "--by modified" in str(caught.value.hint)


def test_nothing_to_do_differs_from_nothing_found(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1)
    with pytest.raises(InputError, match="No files in the range"):
        backfill(archive, tmp_path, since="2025").plan()


# The work


def test_all_chunks_are_published_in_parallel_with_a_lake_per_thread(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2, 3, 4, 5, 6)
    archive.published = {"green_2024-01-01.parquet": "r0"}
    work = backfill(archive, tmp_path)
    plan = work.plan()
    (planner,) = archive.lakes
    together = threading.Barrier(2, timeout=120)
    archive.troubles = {f"green_2024-01-0{day}.parquet": together.wait for day in (2, 3)}
    report = work.run_all(plan, parallel=2)
    assert outcomes(report) == {"01": "already"} | dict.fromkeys(["02", "03", "04", "05", "06"], "published")
    assert sum(one.rows for one in report.results) == 5 * ROWS
    assert not report.again
    assert archive.most_at_once == 2
    assert planner.closed
    workers = archive.lakes[1:]
    assert all(lake.closed and len(lake.threads) == 1 for lake in workers)
    assert len({thread for lake in workers for thread in lake.threads}) == len(workers) == 2
    assert all(options.on_busy == "skip" and options.run_id is None for options in archive.options)


def test_chunks_of_a_new_table_run_alone_until_it_exists(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2, 3, 4)
    alone: list[int] = []
    archive.troubles = {
        "green_2024-01-01.parquet": "rejected",
        "green_2024-01-02.parquet": lambda: alone.append(archive.most_at_once),
    }
    together = threading.Barrier(2, timeout=120)
    archive.troubles |= {f"green_2024-01-0{day}.parquet": together.wait for day in (3, 4)}
    report = run_all(archive, tmp_path, parallel=4)
    assert outcomes(report) == {"01": "rejected", "02": "published", "03": "published", "04": "published"}
    assert alone == [1]
    assert archive.most_at_once == 2


@pytest.mark.parametrize(
    ("trouble", "outcome", "again"),
    [
        ("rejected", "rejected", False),
        (SourceError("Damaged."), "failed", False),
        (EngineError("Out of disk."), "later", True),
        (OutcomeUnknownError("No answer."), "later", True),
        (ValueError("A bug."), "failed", False),
        ("left", "later", True),
        ("known", "already", False),
        ("skipped", "empty", False),
        ("discarded", "failed", False),
    ],
)
def test_one_chunks_failure_does_not_stop_others(
    archive: Archive, tmp_path: Path, trouble: BaseException | str, outcome: str, again: bool
) -> None:
    day_files(tmp_path, 1, 2, 3)
    archive.troubles = {"green_2024-01-02.parquet": trouble}
    report = run_all(archive, tmp_path, parallel=1)
    assert outcomes(report) == {"01": "published", "02": outcome, "03": "published"}
    assert report.again == again
    told = report.results[1].error
    assert (told is not None) == isinstance(trouble, BaseException)
    assert told is None or (str(trouble) if isinstance(trouble, LakegateError) else "ValueError") in told.message


def test_a_second_backfill_does_the_rest_and_a_third_nothing(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2, 3)
    archive.troubles = {"green_2024-01-02.parquet": "rejected", "green_2024-01-03.parquet": EngineError("Gone.")}
    run_all(archive, tmp_path)
    archive.troubles = {}
    day_files(tmp_path / "late", 11)
    assert outcomes(run_all(archive, tmp_path)) == {
        "01": "already",
        "02": "published",
        "03": "published",
        "11": "published",
    }
    done = len(archive.ingested)
    assert set(outcomes(run_all(archive, tmp_path)).values()) == {"already"}
    assert len(archive.ingested) == done


def test_chunks_that_may_change_earlier_rows_run_in_order_and_stop_at_a_failure(
    archive: Archive, tmp_path: Path
) -> None:
    day_files(tmp_path, 1, 2, 3)
    archive.troubles = {"green_2024-01-02.parquet": "rejected"}
    work = backfill(archive, tmp_path, options=IngestOptions(mode="upsert", key=("id",)))
    report = work.run_all(work.plan(), parallel=4)
    assert outcomes(report) == {"01": "published", "02": "rejected", "03": "waiting"}
    with pytest.raises(InputError, match="would replace the rows"):
        backfill(archive, tmp_path, options=IngestOptions(mode="overwrite")).plan()


def test_a_chunk_without_a_file_that_another_run_holds_stops_what_must_run_in_order(
    archive: Archive, tmp_path: Path
) -> None:
    day_files(tmp_path / "a", 1, 2)
    day_files(tmp_path / "b", 1)
    archive.troubles = {"green_2024-01-01.parquet": "held"}
    in_order = backfill(archive, tmp_path, options=IngestOptions(mode="upsert", key=("id",)))
    plan = in_order.plan()
    report = in_order.run_all(plan)
    assert outcomes(report) == {"01": "published", "02": "waiting"}
    assert (report.results[0].left, report.again) == (1, True)


def test_an_observer_that_fails_leaves_no_worker_waiting(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2, 3)
    archive.troubles = {"green_2024-01-01.parquet": lambda: time.sleep(0.5)}  # the other worker waits for the table

    class Broken(Told):
        def ended(self, result: ChunkResult) -> None:
            raise BrokenPipeError

    caught: list[BaseException] = []

    def run() -> None:
        try:
            run_all(archive, tmp_path, parallel=2, watcher=Broken())
        except BrokenPipeError as error:
            caught.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(60)
    assert caught, "it still runs, or failed in another way"


def test_a_lasting_catalog_outage_leaves_the_rest_waiting(archive: Archive, tmp_path: Path) -> None:
    days = range(1, 8)
    day_files(tmp_path, *days)
    gone = CatalogUnavailableError("No answer.")
    archive.troubles = {f"green_2024-01-0{day}.parquet": gone for day in days if day != 2}
    report = run_all(archive, tmp_path, parallel=1)
    assert list(outcomes(report).values()) == ["later", "published", "later", "later", "later", "waiting", "waiting"]
    assert all(lake.closed for lake in archive.lakes)
    assert len(archive.lakes) == 1 + 4, "one to plan, and a fresh one after each trouble"


class Told:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.stopped = threading.Event()

    def began(self, chunk: BackfillChunk) -> None:
        self.words.append(f"began {chunk.name}")

    def ended(self, result: ChunkResult) -> None:
        self.words.append(f"{result.outcome} {result.chunk}")

    def stopping(self, under_way: int) -> None:
        self.words.append(f"stopping {under_way}")
        self.stopped.set()


def press_ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_an_interrupt_finishes_running_chunks_and_starts_no_more(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2)
    told = Told()

    def interrupted() -> None:
        press_ctrl_c()
        assert told.stopped.wait(120)

    archive.troubles = {"green_2024-01-01.parquet": interrupted}
    work = backfill(archive, tmp_path)
    report = work.run_all(work.plan(), parallel=1, watcher=told)
    assert report.interrupted
    assert not report.given_up
    assert report.again
    assert outcomes(report) == {"01": "published", "02": "waiting"}
    assert told.words == ["began 2024-01-01", "stopping 1", "published 2024-01-01"]


def test_a_second_interrupt_waits_for_nothing(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1, 2)
    told, over = Told(), threading.Event()

    def interrupted_twice() -> None:
        press_ctrl_c()
        assert told.stopped.wait(120)
        press_ctrl_c()
        assert over.wait(120)

    archive.troubles = {"green_2024-01-01.parquet": interrupted_twice}
    work = backfill(archive, tmp_path)
    plan = work.plan()
    try:
        report = work.run_all(plan, parallel=1, watcher=told)
    finally:
        over.set()
    assert report.given_up
    assert outcomes(report) == {"01": "waiting", "02": "waiting"}


def test_an_orchestrator_runs_chunks_with_its_own_run_ids(archive: Archive, tmp_path: Path) -> None:
    day_files(tmp_path, 1)
    work = backfill(archive, tmp_path, options=IngestOptions(checks=("not_null(id)",)))
    (chunk,) = work.plan().to_do
    result = work.run(BackfillChunk.model_validate_json(chunk.model_dump_json()), run_id="flow-1")
    assert (result.outcome, result.run_id, result.files) == ("published", "flow-1", 1)
    assert archive.options == [IngestOptions(checks=("not_null(id)",), on_busy="skip", run_id="flow-1")]
    assert work.run(chunk.model_copy(update={"files": ()})).outcome == "already"
    archive.troubles = {"green_2024-01-01.parquet": EngineError("Gone.")}
    with pytest.raises(EngineError):
        work.run(chunk)
    assert all(lake.closed for lake in archive.lakes)


def test_a_chunk_that_replaces_partitions_is_ingested_whole_if_one_of_its_files_is_new(
    archive: Archive, tmp_path: Path
) -> None:
    """The rows of its other files, which are published, would be removed with those that they share partitions with."""
    day_files(tmp_path / "a", 1, 2)
    day_files(tmp_path / "b", 1)
    archive.published = {f"green_2024-01-0{day}.parquet": "r0" for day in (1, 2)}
    (tmp_path / "b" / "green_2024-01-01.parquet").rename(tmp_path / "b" / "late_2024-01-01.parquet")
    late = {"2024-01-01": ["late_2024-01-01.parquet"]}
    whole = {"2024-01-01": ["green_2024-01-01.parquet", "late_2024-01-01.parquet"]}
    upsert, replace = IngestOptions(mode="upsert", key=["id"]), IngestOptions(mode="replace-partitions")
    for options, expected in ((upsert, late), (replace, whole)):
        plan = backfill(archive, tmp_path, options=options).plan()
        chosen = {chunk.name: [file.uri.rpartition("/")[2] for file in chunk.to_do] for chunk in plan.to_do}
        assert chosen == expected, options.mode
        assert BackfillPlan.model_validate_json(plan.model_dump_json()) == plan
