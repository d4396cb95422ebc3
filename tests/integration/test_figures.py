"""What is said of a table's rows after deletes, and which format versions are published, on real Spark and Nessie."""

from __future__ import annotations

import pytest

from lakegate.lake import Lake

pytestmark = pytest.mark.jvm


def written(lake: Lake, name: str, *statements: str) -> tuple[int, int | None]:
    """Run statements in a transaction; return the rows that it says it added and removed."""
    with lake.transaction(name) as tx:
        for statement in statements:
            tx.sql(statement)
    publication = tx.run.publication
    assert publication is not None
    return publication.rows, publication.rows_removed


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_that_came_and_went_are_told(lake: Lake, namespace: str, mode: str) -> None:
    table = f"{namespace}.t"
    modes = ", ".join(f"'write.{kind}.mode' = '{mode}'" for kind in ("delete", "update", "merge"))

    def told() -> str:
        return next(iter(lake.log())).message

    made = f"CREATE TABLE {table} USING iceberg TBLPROPERTIES ({modes}) AS SELECT id, id % 7 AS k FROM range(311)"
    assert written(lake, "load", made) == (311, 0)
    assert told() == "Publish load (311 rows)"
    assert (lake.table(table).rows, lake.table(table).rows_at_most) == (311, 311)

    added, removed = written(lake, "trim", f"DELETE FROM {table} WHERE id < 22")
    assert removed is not None
    assert added - removed == -22
    merged = mode == "merge-on-read"
    if merged:
        assert told() == "Publish trim (-22 rows)"
        assert (lake.table(table).rows, lake.table(table).rows_at_most) == (None, 311)
    else:
        assert told().endswith(" rows, net -22)")
        assert (lake.table(table).rows, lake.table(table).rows_at_most) == (289, 289)
    assert lake.table(table).to_arrow(columns=["id"]).num_rows == 289

    added, removed = written(lake, "fix", f"UPDATE {table} SET k = -1 WHERE id IN (100, 200)")
    assert added == removed
    if merged:
        assert told() == "Publish fix (+2 -2 rows, net +0)"
    upsert = f"MERGE INTO {table} t USING (SELECT id, 9 AS k FROM range(300, 320)) s ON t.id = s.id"
    added, removed = written(
        lake, "merge", f"{upsert} WHEN MATCHED THEN UPDATE SET k = s.k WHEN NOT MATCHED THEN INSERT *"
    )
    assert removed is not None
    assert added - removed == 9
    added, removed = written(lake, "all new", f"INSERT OVERWRITE {table} SELECT id, 0 FROM range(5)")
    assert added == 5
    assert lake.table(table).rows in (5, None)
