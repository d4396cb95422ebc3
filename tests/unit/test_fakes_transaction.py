"""The fake transaction does what the real one does; ``tests/integration/test_spark_transaction.py`` tests that one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakegate.errors import InputError, QueryError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import CreateTable, Snapshot
from support.fakes import FakeLakehouse

TABLE = TableIdentifier.parse("a.t")
CREATE = CreateTable(location="mem://warehouse/a/t")


@pytest.fixture
def house() -> FakeLakehouse:
    made = FakeLakehouse()
    branch = made.catalog.create_branch("wap/x", made.catalog.get_ref("main"))
    made.catalog.commit(CommitRequest(branch="wap/x", base=branch.hash, message="a", namespaces=(("a",),)))
    made.transaction("wap/x", "R").append(TABLE, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], CREATE)
    return made


def snapshots(house: FakeLakehouse) -> list[Snapshot]:
    pointer = house.catalog.get_table(TABLE, house.catalog.get_ref("wap/x"))
    assert pointer is not None
    found = list(house.snapshots(pointer))
    assert {snapshot.summary[RUN_ID_PROPERTY] for snapshot in found} == {"R"}
    return found


def test_writes_of_all_kinds(house: FakeLakehouse) -> None:
    tx = house.transaction("wap/x", "R")
    tx.append(TABLE, pa.table({"V": ["c"], "ID": [3]}), None)
    tx.upsert(TABLE, [{"id": 2, "v": "B"}, {"id": 4, "v": "d"}], ["ID"], None)
    assert sorted((row["id"], row["v"]) for row in tx.table(TABLE)) == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]
    tx.upsert(TABLE, [{"id": 5, "v": "e"}], ["id"], None)
    tx.overwrite(TABLE, [{"id": 9, "v": "o"}], None)
    assert tx.table(TABLE) == house.rows_on("wap/x", "a.t") == [{"id": 9, "v": "o"}]
    assert [s.operation for s in snapshots(house)] == ["append", "append", "overwrite", "append", "overwrite"]
    assert house.rows_on("main", "a.t") == []


def test_refused_statements_write_nothing(house: FakeLakehouse) -> None:
    tx = house.transaction("wap/x", "R")
    for rows in ([{"id": 3, "v": "x"}, {"id": 3, "v": "y"}], [{"id": None, "v": "x"}]):
        with pytest.raises(InputError, match="key"):
            tx.upsert(TABLE, rows, ["id"], None)
    with pytest.raises(SchemaError):
        tx.append(TABLE, [{"id": 3}], None)
    with pytest.raises(QueryError):
        tx.append(TableIdentifier.parse("a.none"), [{"id": 3}], None)
    assert len(snapshots(house)) == 1
