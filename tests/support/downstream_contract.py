"""What every downstream system keeps, whatever it is made of."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any

import pytest

from lakegate.errors import DownstreamError, LakegateError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.schema import Column, Schema
from lakegate.ports import Downstream

AT = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
LAKE = "s3://lake/nyc/trips_1/metadata"
SCHEMA = Schema(columns=(Column(name="id", type="long"), Column(name="pickup 🚕", type="timestamp")))


def changed(table: str = "nyc.trips", number: int = 1, **values: Any) -> ChangedTable:
    """A table whose metadata is number ``number``, after the one before."""
    before = f"{LAKE}/{number - 1:05}-x.metadata.json" if number else None
    given = {
        "before": before,
        "after": f"{LAKE}/{number:05}-x.metadata.json",
        "change": "append" if number else "create",
        "created": not number,
        "location": LAKE.rpartition("/")[0],
        "table_schema": SCHEMA,
        "snapshot_id": 100 + number,
        "snapshot_ids": (100 + number,),
        "rows": 10 * (number + 1),
        "rows_added": 10,
        "rows_removed": 0,
    }
    return ChangedTable.model_validate({"table": table, **given, **values})


def dropped(table: str = "nyc.trips", number: int = 1) -> ChangedTable:
    before = f"{LAKE}/{number - 1:05}-x.metadata.json"
    return ChangedTable(table=table, before=before, change="drop", dropped=True)


def event(*tables: ChangedTable, kind: str = "published", **values: Any) -> DownstreamEvent:
    commit = None if kind in ("rejected", "failed") else f"{len(tables):064x}"
    given = {"event_id": f"e-{kind}-{values.get('run_id', 'r1')}", "run_id": "r1", "commit": commit, "at": AT}
    return DownstreamEvent.model_validate({"kind": kind, "tables": tables or (changed(),), **given, **values})


class DownstreamContract:
    """Subclass it, name the class ``Test…``, and make the fixtures."""

    @pytest.fixture
    @abstractmethod
    def target(self) -> Downstream:
        """A system that takes whatever it is sent."""

    @pytest.fixture
    @abstractmethod
    def away(self) -> Downstream:
        """One that can't be reached now."""

    @pytest.fixture
    @abstractmethod
    def refusing(self) -> Downstream:
        """One that refuses every event, and would do so again."""

    def test_an_event_may_come_twice(self, target: Downstream) -> None:
        target.deliver(event(changed(number=0)), None)
        target.deliver(event(changed(number=0)), None)

    def test_a_table_lives_from_its_creation_to_its_end(self, target: Downstream) -> None:
        target.deliver(event(changed(number=0)), None)
        target.deliver(event(changed(number=1), run_id="r2"), None)
        target.deliver(event(changed(number=2, rows_added=0, rows_removed=10), kind="reverted", run_id="r3"), None)
        target.deliver(event(dropped(number=3), kind="reverted", run_id="r4"), None)
        target.deliver(event(dropped(number=3), kind="reverted", run_id="r4"), None)
        target.deliver(event(changed(number=0, before=None), kind="restored", run_id="r5"), None)

    @pytest.mark.parametrize("kind", ["published", "reverted", "restored", "current", "rejected", "failed"])
    def test_every_kind_of_event_is_taken(self, target: Downstream, kind: str) -> None:
        nothing = kind in ("rejected", "failed")
        table = ChangedTable(table="nyc.trips") if nothing else changed(number=0)
        target.deliver(event(table, kind=kind), None)

    def test_several_tables_come_together(self, target: Downstream) -> None:
        target.deliver(event(changed(number=0), changed("nyc.fares", number=0), changed("a.b.c", number=0)), None)

    def test_what_is_not_known_is_not_needed(self, target: Downstream) -> None:
        bare = ChangedTable(table="nyc.trips", after=f"{LAKE}/00000-x.metadata.json", created=True)
        target.deliver(event(bare, kind="current", run_id=None), None)

    def test_one_that_is_away_is_tried_again(self, away: Downstream) -> None:
        with pytest.raises(LakegateError) as caught:
            away.deliver(event(changed(number=0)), None)
        assert not isinstance(caught.value, DownstreamError)
        with pytest.raises(LakegateError):
            away.test()

    def test_one_that_refuses_says_so(self, refusing: Downstream) -> None:
        with pytest.raises(DownstreamError) as caught:
            refusing.deliver(event(changed(number=0)), None)
        assert "hunter2" not in f"{caught.value.message} {caught.value.hint} {caught.value.context}"

    def test_testing_says_what_was_checked(self, target: Downstream) -> None:
        assert target.test().endswith(".")
