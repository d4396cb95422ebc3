"""Files under other names, and other files with the same bytes, on their way through an ingest."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.errors import InputError
from lakegate.journal.journal import Journal
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import rebuild
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, ordered, when_reached
from support.memory_journal import MemoryDatabase

SHA = "sha256:" + "0" * 64


def of(house: FakeLakehouse, name: str, identity: str, *, run: str, **options: Any) -> IngestRequest:
    order = ordered(house, CLEAN, run=run, file=name, version=SHA, **options)
    files = tuple(file.model_copy(update={"identity": identity}) for file in order.batch.files)
    return order.model_copy(update={"batch": order.batch.only(files)})


def lose_the_journal(house: FakeLakehouse) -> None:
    house.journal = Journal(MemoryDatabase())


def told(run: Run) -> list[tuple[str, str | None]]:
    return [(known.file.uri, known.same_content_as) for known in run.same_content_as]


@pytest.mark.parametrize("lost", [False, True], ids=["journal", "journal lost"])
def test_a_renamed_file_is_skipped_and_a_copy_is_said(lost: bool) -> None:
    house = FakeLakehouse()
    assert ingest(house.context, of(house, "a", "1-2-3", run="r1")).status == "published"
    if lost:
        lose_the_journal(house)
    renamed = ingest(house.context, of(house, "b", "1-2-3", run="r2"))
    assert (renamed.status, renamed.skipped_files[0].same_file_as) == ("skipped", "file:///a.parquet")
    with pytest.raises(InputError, match=r"c\.parquet has the same content as file:///a\.parquet.*Nothing was written"):
        ingest(house.context, of(house, "c", "1-9-9", run="r3", on_same_content="refuse"))
    skipped = ingest(house.context, of(house, "c", "1-9-9", run="r4", on_same_content="skip"))
    assert (skipped.status, skipped.skipped_files[0].same_content_as) == ("skipped", "file:///a.parquet")
    appended = ingest(house.context, of(house, "c", "1-9-9", run="r5"))
    assert appended.status == "published"
    assert told(appended) == [("file:///c.parquet", "file:///a.parquet")]
    assert rebuild(house.context, "main").files == 2


@pytest.mark.parametrize(
    ("identity", "policy", "ends"),
    [("1-2-3", "append", "skipped"), ("1-9-9", "skip", "skipped"), ("1-9-9", "append", "published")],
)
def test_what_another_journal_published_meanwhile_is_found_before_the_commit(
    monkeypatch: pytest.MonkeyPatch, identity: str, policy: str, ends: str
) -> None:
    house = FakeLakehouse()
    other = FakeLakehouse()
    # The same catalog and tables, with another journal.
    other.__dict__ = {**house.__dict__, "journal": Journal(MemoryDatabase())}

    def publish_elsewhere() -> None:
        assert ingest(other.context, of(other, "a", "1-2-3", run="r1")).status == "published"

    with when_reached(monkeypatch, "before-publish", publish_elsewhere):
        run = ingest(house.context, of(house, "b", identity, run="r2", on_same_content=policy))
    assert run.status == ends
    assert str(TRIPS) == run.table


def test_a_refused_copy_gives_back_its_claims() -> None:
    house = FakeLakehouse()
    ingest(house.context, of(house, "a", "1-2-3", run="r1"))
    with pytest.raises(InputError):
        ingest(house.context, of(house, "c", "1-9-9", run="r2", on_same_content="refuse"))
    assert ingest(house.context, of(house, "c", "1-9-9", run="r3")).status == "published"
