"""Rows of another system that are ingested by watermark: each is published once, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from lakegate.errors import InputError, RetryableError
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.model.request import IngestRequest, WriteMode
from lakegate.model.source import Source, WatermarkRanges, allowed_range, untaken_ranges
from lakegate.wap.claims import RowsTakenError, rows_left
from lakegate.wap.deadline import Deadline
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import TRIPS, when_reached

ORDERS = Source.parse("shop.public.orders", watermark="id")


@dataclass
class Frame:
    """A database's table, of which the last filter is known."""

    condition: str = ""

    def where(self, condition: str) -> Frame:
        return Frame(condition)


def left(house: FakeLakehouse, highest: int | None, source: Source = ORDERS, **options: Any) -> str:
    house.mark = ("bigint", None if highest is None else str(highest))
    mode = options.pop("mode", WriteMode())
    wait_s = options.pop("wait_s", 0.0)
    _, version = rows_left(house.context, TRIPS, source, Frame(), run_id="next", mode=mode, wait_s=wait_s, **options)
    return version


def said(version: str) -> str:
    found = WatermarkRanges.parse(version)
    return "" if found is None else str(found)


def taking(house: FakeLakehouse, run: str, version: str, passengers: int | None = 1) -> IngestRequest:
    house.sources[ORDERS.uri] = [{"id": 1, "passengers": passengers}]
    file = SourceFile(uri=ORDERS.uri, size_bytes=1, version=version, rows=1)
    columns = (SourceColumn(name="id", type="int64"), SourceColumn(name="passengers", type="int64"))
    return IngestRequest(
        run_id=run,
        table=TRIPS,
        batch=Batch(format="parquet", files=(file,), columns=columns),
        branch=f"wap/{TRIPS}_{run}",
        on_changed="append",
    )


def test_rows_that_no_commit_has_are_left(house: FakeLakehouse) -> None:
    """A revert gives rows back, rows after those stay taken, and no journal is needed to know that."""
    assert left(house, None) == ""
    for run, highest, expected in (("r1", 10, "id up to 10"), ("r2", 20, "id after 10 up to 20")):
        version = left(house, highest)
        assert said(version) == expected
        assert ingest(house.context, taking(house, run, version)).status == "published"
    assert left(house, 20) == ""
    revert(house.context, "r1", new_run_id="back")
    for _ in range(2):
        assert said(left(house, 30)) == "id up to 10, and after 20 up to 30"
        house.lose_journal()
    assert said(left(house, 5, Source.parse(str(ORDERS), watermark="id", until="9"))) == "id up to 5"
    assert house.looked_within == "(`id` <= CAST('9' AS bigint))"


def test_rows_that_others_took_are_not_published_again(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    version = left(house, 10)
    later = left(house, 15)
    # Of one journal, the claim sees it; of two journals, the commit does.
    ingest(house.context, taking(house, "r1", version))
    with pytest.raises(RowsTakenError, match="Run r1 published rows of source://shop/public/orders"):
        ingest(house.context, taking(house, "r2", later))
    revert(house.context, "r1", new_run_id="back")

    def elsewhere() -> None:
        mine = house.journal
        house.lose_journal()
        ingest(house.context, taking(house, "r3", version))
        house.journal = mine

    with (
        when_reached(monkeypatch, "before-publish", elsewhere),
        pytest.raises(RowsTakenError, match="Run r3 published rows"),
    ):
        ingest(house.context, taking(house, "r4", later))
    assert said(left(house, 15)) == "id after 10 up to 15"


@pytest.mark.parametrize(
    ("kind", "latest"),
    [
        ("timestamp", "2024-05-02 12:00:00Z"),
        ("timestamp_ntz", "2024-05-03 02:00:00"),
        ("date", "2024-05-01"),
        ("bigint", None),
    ],
)
def test_the_clock_limits_which_rows_are_looked_at_and_ends_no_range(kind: str, latest: str | None) -> None:
    """What a limit left out comes later: only a mark that was read is an end."""
    limit = allowed_range("at", kind, until=None, now=datetime(2024, 5, 2, 12, tzinfo=UTC))
    assert (limit and limit.where(kind)) == (latest and f"(`at` <= CAST('{latest}' AS {kind}))")
    highest = "5" if kind == "bigint" else "2024-04-01"
    assert str(untaken_ranges("at", kind, highest, [])).startswith(f"at up to {highest}")


@pytest.mark.parametrize(
    ("kind", "until", "said"),
    [
        ("timestamp_ntz", "2024-05-02T10:00:00Z", "the column's times have no time zone"),
        ("timestamp", "0001-01-01T00:00:00+14:00", "isn't a comparable timestamp"),
        ("date", "+12024-01-01", "isn't a comparable date"),
    ],
)
def test_a_limit_that_is_no_mark_is_refused(kind: str, until: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        allowed_range("at", kind, until=until, now=datetime(2024, 5, 2, tzinfo=UTC))
    assert caught.value.hint


def test_a_long_query_fits_into_the_index_of_a_journal() -> None:
    short, long, longer = (Source("shop", sql=f"SELECT {'é' * length}").uri for length in (9, 500, 501))
    assert "?sql=SELECT" in short
    assert len(long) < 100
    assert long != longer


def test_a_retry_that_finds_no_rows_left_is_skipped(house: FakeLakehouse) -> None:
    order = taking(house, "r2", left(house, 8))
    ingest(house.context, taking(house, "r1", left(house, 10)))
    with pytest.raises(RowsTakenError):
        resume(house.context, "r2", until="publish", request=lambda: order)
    none = order.model_copy(update={"batch": order.batch.only((order.batch.files[0].model_copy(update={"rows": 0}),))})
    house.changed_sources = order.batch.files
    run = resume(house.context, "r2", until="publish", request=lambda: none)
    assert (run.status, run.detail) == ("skipped", f"{ORDERS.uri} has no rows to take; nothing to publish.")
    assert said(left(house, 20)) == "id after 10 up to 20"


def test_a_whole_table_does_not_go_on_top_of_its_marked_rows(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = left(house, 10)

    def elsewhere() -> None:
        mine = house.journal
        house.lose_journal()
        ingest(house.context, taking(house, "r1", version))
        house.journal = mine

    with when_reached(monkeypatch, "before-publish", elsewhere), pytest.raises(InputError, match="r1"):
        ingest(house.context, taking(house, "r2", "sha256:1").model_copy(update={"on_changed": "refuse"}))


def test_a_run_that_is_taking_rows_is_waited_for(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed gives its rows back."""
    version = left(house, 10)

    def meanwhile() -> None:
        with pytest.raises(RetryableError, match="Run r1 is still working on source://shop/public/orders"):
            left(house, 20)

        assert said(left(house, 20, wait_s=None)) == "id up to 20"

    with when_reached(monkeypatch, "before-publish", meanwhile):
        ingest(house.context, taking(house, "r1", version))
    house.dies_at(monkeypatch, "after-claim", lambda: ingest(house.context, taking(house, "r2", left(house, 20))))
    assert said(left(house, 20, wait_s=None)) == "id after 10 up to 20"
    assert [run.run_id for run in house.journal.abandoned()] == ["r2"]  # a look settles nothing
    with pytest.raises(RetryableError, match="Run r2 is still working"):
        left(house, 20, wait_s=60.0, deadline=Deadline.after(0))
    assert [run.run_id for run in house.journal.abandoned()] == ["r2"]  # no time was left to
    assert said(left(house, 20)) == "id after 10 up to 20"


def test_rows_taken_in_another_way_are_refused(house: FakeLakehouse) -> None:
    with pytest.raises(InputError, match="Mode overwrite"):
        left(house, 1, mode=WriteMode(name="overwrite"))
    ingest(house.context, taking(house, "r1", left(house, 10)))
    with pytest.raises(InputError, match="by id \\(bigint\\), not by at \\(bigint\\)"):
        left(house, 1, Source.parse(str(ORDERS), watermark="at"))
    revert(house.context, "r1", new_run_id="back")
    ingest(house.context, taking(house, "r2", "sha256:1"))
    with pytest.raises(InputError, match="as a whole"):
        left(house, 1)
