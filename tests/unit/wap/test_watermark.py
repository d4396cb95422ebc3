"""Rows of another system that are taken by a watermark: each is published once, whatever happens on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from lakegate.errors import InputError, RetryableError
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.model.request import IngestRequest, WriteMode
from lakegate.model.source import MarkRanges, Source
from lakegate.wap.claims import RowsTakenError
from lakegate.wap.ingest import ingest
from lakegate.wap.revert import revert
from lakegate.wap.watermark import rows_left
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
    _, version = rows_left(house.context, TRIPS, source, Frame(), run_id="next", mode=mode, wait_s=0.0)
    return version


def said(version: str) -> str:
    found = MarkRanges.parse(version)
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


def test_what_is_left_is_what_commits_do_not_hold(house: FakeLakehouse) -> None:
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
    assert said(left(house, 30, Source.parse(str(ORDERS), watermark="id", until="5"))) == "id up to 5"


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


def test_a_run_that_is_taking_rows_is_waited_for(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed gives its rows back."""
    version = left(house, 10)

    def meanwhile() -> None:
        with pytest.raises(RetryableError, match="Run r1 is still working on source://shop/public/orders"):
            left(house, 20)

    with when_reached(monkeypatch, "before-publish", meanwhile):
        ingest(house.context, taking(house, "r1", version))
    house.dies_at(monkeypatch, "after-claim", lambda: ingest(house.context, taking(house, "r2", left(house, 20))))
    assert said(left(house, 20)) == "id after 10 up to 20"


def test_what_was_taken_otherwise_is_refused(house: FakeLakehouse) -> None:
    with pytest.raises(InputError, match="Mode overwrite"):
        left(house, 1, mode=WriteMode(name="overwrite"))
    ingest(house.context, taking(house, "r1", left(house, 10)))
    with pytest.raises(InputError, match="by id \\(bigint\\), not by at \\(bigint\\)"):
        left(house, 1, Source.parse(str(ORDERS), watermark="at"))
    revert(house.context, "r1", new_run_id="back")
    ingest(house.context, taking(house, "r2", "sha256:1"))
    with pytest.raises(InputError, match="as a whole"):
        left(house, 1)
