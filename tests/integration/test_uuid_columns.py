"""Columns of UUIDs, which Spark reads and writes as text, and Trino and PyIceberg create, on real Spark and Iceberg."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from lakegate.errors import AuditFailedError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from support.lakes import components_of

pytestmark = pytest.mark.jvm

KEYS = [str(UUID(int=(number << 124) + number)) for number in (0, 1, 7, 8, 9, 15)]
"""Half of them are negative where Iceberg for Java compares UUIDs."""


def test_keys_of_uuids_are_found_in_whichever_file_they_are(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table, name = f"{namespace}.people", f"`{namespace}`.`people`"
    lake.transact(lambda tx: tx.sql(f"CREATE TABLE {name} (id bigint, u string)"))
    _turn_into_uuids(lake, table)
    rows = ", ".join(f"({number}, '{key}')" for number, key in enumerate(KEYS))
    lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} VALUES {rows}"))
    assert [column.type for column in lake.table(table).metadata.table_schema.columns] == ["long", "uuid"]

    for key in KEYS:
        with pytest.raises(AuditFailedError) as caught, lake.transaction(name=f"again {key}") as tx:
            tx.sql(f"INSERT INTO {name} VALUES (10, '{key}'), (11, '{uuid4()}')")
            tx.check(table, "unique(u, scope='table')")
        assert "unique" in caught.value.message
    with lake.transaction(name="new") as tx:
        tx.sql(f"INSERT INTO {name} VALUES (12, '{uuid4()}')")
        tx.check(table, "unique(u, scope='table')", f"not_null(id, where=\"u > '{KEYS[2]}'\")")
    assert tx.run.status == "published"

    # Checks are planned on the table's columns before rows are written, and a file may lack the column.
    with lake.transaction(name="planned") as tx:
        tx.check(table, "sql(\"u < '0'\")")
        tx.sql(f"INSERT INTO {name} VALUES (13, '{uuid4()}')")
    assert lake.ingest(table, [{"id": 14}], schema="evolve", checks=["sql('id < 0')"]).status == "published"

    lake.maintenance.optimize(
        table
    )  # all keys are in one file now, between the bounds of none where Iceberg compares them
    deleted = lake.delete_rows(table, f"u = '{KEYS[2]}'")
    assert [(one.rows_removed or 0) - one.rows for one in deleted.staged] == [1]
    lake.revert(deleted.run_id)

    visits = pa.table({"person": KEYS})
    known = f"relationships(person, to='{table}', to_columns=u)"
    assert lake.ingest(f"{namespace}.visits", visits, checks=[known]).status == "published"


def _turn_into_uuids(lake: Lake, table: str) -> None:
    """Make the text column of an empty table one of UUIDs."""
    catalog = components_of(lake).catalog
    head, known = catalog.get_ref("main"), TableIdentifier.parse(table)
    pointer = catalog.get_table(known, head)
    assert pointer is not None
    document = json.loads(local_path(pointer.metadata_location).read_text())
    for schema in document["schemas"]:
        schema["fields"][1]["type"] = "uuid"
    location = local_path(pointer.metadata_location).with_name(f"00009-{uuid4()}.metadata.json")
    location.write_text(json.dumps(document))
    moved = pointer.model_copy(update={"metadata_location": location.as_uri()})
    catalog.commit(CommitRequest(branch="main", base=head.hash, message="UUIDs", puts=(moved,)))
