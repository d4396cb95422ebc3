"""One table, its commits and its files, from metadata and manifests written by PyIceberg."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakegate.dashboard.history import list_commits
from lakegate.dashboard.model import ReadModel, rows_after
from lakegate.dashboard.tables import (
    TableDetail,
    check_history,
    get_table,
    list_snapshots,
)
from lakegate.errors import IdentifierError, InputError, NotFoundError
from lakegate.model.run import Run
from support.big_lake import HOSTILE, BigLake, big_lake

Load = Callable[..., Run]


def test_a_table(big: BigLake) -> None:
    detail = get_table(big.model(), big.tables[0])
    assert detail.facts.rows == detail.facts.trend[-1]
    assert {"id", "🐘 emoji", "<b>bold</b>"} <= {column.name for column in detail.metadata.table_schema.columns}
    assert TableDetail.model_validate_json(detail.model_dump_json()) == detail


@pytest.mark.parametrize("name", ["", "x", "<b>.x", "nyc.'; DROP TABLE runs", "nyc." + "x" * 999])
def test_names_that_name_no_table(big: BigLake, name: str) -> None:
    with pytest.raises((IdentifierError, NotFoundError)):
        get_table(big.model(), name)


def test_snapshots_say_what_each_added(big: BigLake) -> None:
    page = list_snapshots(big.model(), big.tables[0], limit=2)
    newest, second = (rows_after(one) or 0 for one in page.items)
    assert newest == second + 40
    assert page.items[0].summary["added-records"] == "40"
    assert page.total == newest // 40


def test_quarantined_rows_are_counted_with_their_table(model: ReadModel, load: Load) -> None:
    load({"id": 1}, {"id": None}, {"id": None}, checks="not_null(id, severity='quarantine')")
    load({"id": 1}, table="nyc.zones")
    assert get_table(model, "nyc.trips").quarantined == 2
    assert get_table(model, "nyc.zones").quarantined == 0


def test_since_when_a_check_fails(model: ReadModel, load: Load) -> None:
    load({"id": None}, {"id": 1})
    passed = load({"id": 1})
    first = load({"id": None}, {"id": 1})
    load({"id": None}, {"id": 1})
    (check,) = check_history(model, "nyc.trips")
    assert check.failing == (1, 0, 1, 1)
    assert check.failing_since is not None
    assert (check.failing_since.run_id, check.last_pass) == (first.run_id, passed.started_at)
    assert check_history(model, "nyc.nowhere") == ()


def test_commits_of_lakegate_and_of_others(big: BigLake) -> None:
    found = list_commits(big.model(), limit=1000).items
    assert found[0].kind == "other"
    assert found[0].message == HOSTILE
    revert = next(one for one in found if one.kind == "revert")
    assert revert.reverts
    assert all(one.reverted_by is None for one in found if one.kind == "publish")
    page = list_commits(big.model(), limit=2)
    assert list_commits(big.model(), limit=3, cursor=page.next).items == found[2:5]
    with pytest.raises(InputError, match="isn't the start of a page"):
        list_commits(big.model(), cursor="<script>")
    branch = next(ref for ref in big.model().branches() if ref.name.startswith("wap/"))
    with pytest.raises(InputError, match="isn't in the history of 'main'"):
        list_commits(big.model(), cursor=branch.hash)


def test_a_metadata_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=4, tables=1, branches=0)
    model, table = lake.model(), lake.tables[0]
    shutil.rmtree(tmp_path / ".lakegate/warehouse" / table.replace(".", "/"))
    for read in (get_table, list_snapshots):
        with pytest.raises(NotFoundError, match="doesn't exist"):
            read(model, table)
    assert list_commits(model).items
    assert check_history(model, table)
    lake.close()
