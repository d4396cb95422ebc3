"""Everyday work reads as many commits of a long history as of a short one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakegate.errors import CatalogUnavailableError
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit, CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.points import find, resolve
from lakegate.wap.gc import drop_orphaned_branches
from lakegate.wap.history import FILES_PROPERTY, TABLES_PROPERTY, encode_files, find_commit, sync
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import rebuild, recover
from lakegate.wap.revert import restore_table, revert
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, ordered

LENGTHS = (10, 100)


def aged(commits: int) -> FakeLakehouse:
    """Return a lake with so many earlier runs, and two that are real."""
    house = FakeLakehouse()
    head = house.catalog.get_ref("main")
    for number in range(commits):
        files = [SourceFile(uri=f"file:///old/{number}", size_bytes=1, version="1", rows=1)]
        properties = {RUN_ID_PROPERTY: f"o{number}", TABLES_PROPERTY: "old.t", FILES_PROPERTY: encode_files(files)}
        request = CommitRequest(branch="main", base=head.hash, message="m", at_head=True, properties=properties)
        head = house.catalog.commit(request)
    for run in ("r1", "r2"):
        assert ingest(house.context, ordered(house, run=run, file=run)).status == "published"
    sync(house.context, "main")
    return house


WORK: dict[str, Callable[[FakeLakehouse, Commit], object]] = {
    "ingest": lambda house, _: ingest(house.context, ordered(house, run="r3", file="r3")),
    "ingest, again": lambda house, _: ingest(house.context, ordered(house, run="r3", file="r2")),
    "revert": lambda house, _: revert(house.context, "r2", new_run_id="r3", target="main"),
    "restore": lambda house, at: restore_table(house.context, TRIPS, _at(at), new_run_id="r3"),
    "recover": lambda house, _: recover(house.context),
    "a commit": lambda house, at: find(house.catalog, at.hash[:8], index=house.journal.commits),
    "a time": lambda house, at: resolve(house.catalog, "main", at.time, index=house.journal.commits),
    "a commit at which": lambda house, at: resolve(house.catalog, "main", at.hash[:8], index=house.journal.commits),
}


def _at(commit: Commit) -> Ref:
    return Ref(name="main", hash=commit.hash, kind="detached")


def test_recovery_lists_no_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    house = aged(0)
    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "delete_ref", away)
        ingest(house.context, ordered(house, run="r3", file="r3"))
    monkeypatch.setattr(house.catalog, "list_refs", away)
    recover(house.context)
    assert [ref.name for ref in drop_orphaned_branches(house.context)] == ["wap/nyc.trips_r3"]
    assert not house.journal.with_branch(("published",))


def away(*_: object) -> Any:
    raise CatalogUnavailableError("Nessie went away.")


@pytest.mark.parametrize("what", WORK)
def test_it_reads_as_little_of_a_long_history_as_of_a_short_one(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for commits in LENGTHS:
        house = aged(commits)
        first = next(iter(house.catalog.history("main", run_id="r1")))
        looked_at = list_commits_read(house, monkeypatch)
        WORK[what](house, first)
        read.append(len(looked_at))
    assert read[0] == read[1], what


def list_commits_read(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each commit that is read."""
    history, looked_at = house.catalog.history, list[str]()

    def noted(ref: str, **options: Any) -> Iterator[Commit]:
        # What a server looks through for a filter counts, too.
        run_id = options.pop("run_id", None)
        for commit in history(ref, **options):
            looked_at.append(commit.hash)
            if run_id in (None, commit.properties.get(RUN_ID_PROPERTY)):
                yield commit

    monkeypatch.setattr(house.catalog, "history", noted)
    return looked_at


def test_what_runs_did_is_known_when_their_detail_has_expired() -> None:
    house = aged(0)
    before = {run.run_id: run for run in house.journal.runs(limit=9)}
    assert house.journal.expire_detail(datetime.now(UTC) + timedelta(days=1), "Deleted.") == 2
    for run_id in ("r1", "r2"):
        left = house.journal.get(run_id)
        assert left is not None
        assert (left.steps, left.reports) == ((), ())
        assert left.staged == before[run_id].staged
        assert find_commit(house.context, run_id, house.catalog.get_ref("main")).puts
    assert ingest(house.context, ordered(house, run="r3", file="r2")).status == "skipped"
    assert len(house.rows_on("main", "nyc.trips")) == 2 * len(CLEAN)
    undone = revert(house.context, "r1", new_run_id="x1", target="main")
    assert (undone.status, len(house.rows_on("main", "nyc.trips"))) == ("published", len(CLEAN))
    reverted = house.journal.get("r1")
    assert reverted is not None
    assert (reverted.status, reverted.reverted_by) == ("reverted", "x1")
    rebuild(house.context, "main")
    assert ingest(house.context, ordered(house, run="r4", file="r2")).status == "skipped"
