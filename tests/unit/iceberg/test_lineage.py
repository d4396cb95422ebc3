"""What happened to a table between two states: cases that ``operation`` alone would get wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from lakegate.context import Context
from lakegate.errors import InputError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.lineage import TableState, classify
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.tables import Snapshot, TableChange
from lakegate.wap.stage import require_safe_properties
from support.iceberg_tables import IcebergTables, append, iceberg_tables, ids_at, pointer_to


def snapshot(number: int, parent: int | None, operation: str = "append", **summary: object) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_id=parent,
        time=datetime(2026, 1, 1, tzinfo=UTC),
        operation=operation,
        summary={key.replace("_", "-"): str(value) for key, value in summary.items()},
    )


def table(current: int | None, *snapshots: Snapshot, **other: Any) -> TableState:
    return TableState("u1", current, snapshots, **{"definition": "columns", **other})


BASE = table(1, snapshot(1, None, added_records=2, total_records=2))
ONE = BASE.snapshots[0]


def changed(after: TableState | None, before: TableState | None = BASE, more: Sequence[int] = ()) -> TableChange:
    """Classify; the manifests of the snapshots ``more`` say that they did more than add files."""
    return classify(before, after, lambda one: one.snapshot_id not in more)


def told(change: TableChange) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return change.kind, change.snapshot_ids, tuple(one.snapshot_id for one in change.written)


def test_appends_on_top_of_what_was_there() -> None:
    after = table(
        3, ONE, snapshot(2, 1, added_records=1, total_records=3), snapshot(3, 2, added_records=4, total_records=7)
    )
    change = changed(after)
    assert told(change) == ("append", (2, 3), (2, 3))
    assert (change.parent_snapshot_id, change.rows_added, change.rows_removed, change.reason) == (1, 5, 0, None)
    # Main's own snapshots may be expired: what was there is known by its id.
    assert told(changed(replace(after, snapshots=after.snapshots[1:]))) == ("append", (2, 3), (2, 3))


def test_a_snapshot_that_was_rolled_back_is_no_part_of_an_append() -> None:
    good = table(3, ONE, snapshot(2, 1), snapshot(3, 1))
    assert told(changed(good)) == ("append", (3,), (2, 3))
    assert told(changed(table(1, ONE, snapshot(2, 1)))) == ("rewrite", (), (2,))


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (table(3, ONE, snapshot(3, 2)), "expired"),
        (table(3, ONE, snapshot(3, None)), "doesn't descend"),
        (table(2, ONE, snapshot(2, 1, "overwrite")), "'overwrite'"),
        (table(2, ONE, snapshot(2, 1, "replace")), "'replace'"),
        (table(2, ONE, snapshot(2, 1, added_records=1, total_records=1)), "lost or added rows"),
        (table(None, ONE), "doesn't descend"),
        (table(2, ONE, snapshot(2, 1), definition="others"), "schema"),
        (table(2, ONE, snapshot(2, 1), refs={"tag": 1}), "branches or tags"),
        (table(1, ONE, refs={"tag": 1}), "branches or tags"),
        (replace(table(2, ONE, snapshot(2, 1)), uuid="u2"), "another table"),
        (table(1), "expired"),
    ],
)
def test_a_rewrite_says_why_it_is_one(after: TableState, reason: str) -> None:
    change = changed(after)
    assert (change.kind, change.only_adds) == ("rewrite", False)
    assert reason in (change.reason or "")


def test_compactions_of_lakegate_are_passed_over_if_asked() -> None:
    two = snapshot(2, 1, added_records=3, total_records=5)
    counts = {"added_records": 4, "deleted_records": 5, "total_records": 4, "total_delete_files": 0}
    own = snapshot(3, 2, "replace", **counts)
    four = snapshot(4, 3, added_records=1, total_records=5)

    def past(*snapshots: Snapshot, **other: Any) -> TableChange:
        after = table(snapshots[-1].snapshot_id, ONE, *snapshots, **other)
        return classify(BASE, after, lambda one: one.operation == "append", compacted=True)

    change = past(two, own, four)
    assert told(change) == ("append", (2, 4), (2, 3, 4))
    assert (change.parent_snapshot_id, change.rows_added, change.rows_removed) == (1, 4, 0)
    assert told(past(two, own)) == ("append", (2,), (2, 3))
    assert told(past(own.model_copy(update={"parent_id": 1}))) == ("append", (), (3,))
    assert changed(table(4, ONE, two, own, four)).kind == "rewrite"
    # Only delete files explain why rows are fewer, and nothing why they are more.
    again = snapshot(4, 3, "replace", **counts)
    assert past(two, own, again).reason == "snapshot 4 replaced 5 rows with 4, so it's no compaction"
    more = snapshot(3, 2, "replace", **{**counts, "added_records": 6})
    assert past(two, more).reason == "snapshot 3 replaced 5 rows with 6, so it's no compaction"
    manifests = snapshot(4, 3, "replace", total_records=4, total_delete_files=0)
    assert told(past(two, own, manifests)) == ("append", (2,), (2, 3, 4))
    deleted = four.model_copy(update={"operation": "delete"})
    assert past(two, own, deleted).reason == "snapshot 4 isn't an append: its operation is 'delete'"
    assert past(two, own, definition="others").kind == "rewrite"
    lost = four.model_copy(update={"summary": {"added-records": "1", "total-records": "3"}})
    assert past(two, own, lost).reason == "snapshot 4 lost or added rows beyond those it says it added"


def test_snapshots_that_were_forgotten_change_nothing() -> None:
    two = table(2, ONE, snapshot(2, 1))
    shorter = replace(two, snapshots=two.snapshots[1:])
    assert told(changed(shorter, two)) == ("expire", (), ())
    assert changed(replace(shorter, definition="others"), two).kind == "rewrite"
    assert changed(replace(shorter, uuid="u2"), two).kind == "rewrite"
    assert changed(replace(shorter, next_row_id=9), replace(two, next_row_id=7)).kind == "rewrite"


@pytest.mark.parametrize(
    ("copied", "net"), [(7, (3, 1)), (8, (2, 0)), (9, (10, 8)), (0, (10, 8)), ("-1", (10, 8)), (None, (10, 8))]
)
def test_rows_that_a_merge_only_copied_were_neither_added_nor_removed(copied: object, net: tuple[int, int]) -> None:
    counts = {"added_records": 10, "deleted_records": 8}
    more = {} if copied is None else {"spark.merge-into.num-target-rows-copied": copied}
    change = changed(table(2, ONE, snapshot(2, 1, "overwrite", **counts, **more)))
    assert (change.rows_added, change.rows_removed) == net
    silent = changed(table(2, ONE, snapshot(2, 1, "overwrite")))
    assert (silent.rows_added, silent.rows_removed) == (0, 0)


def test_a_rollback_to_an_older_snapshot_is_a_rewrite() -> None:
    two = snapshot(2, 1)
    assert told(changed(table(1, ONE, two), table(2, ONE, two))) == ("rewrite", (), ())


def test_manifests_have_the_last_word_on_an_append() -> None:
    change = changed(table(2, ONE, snapshot(2, 1)), more=[2])
    assert (change.kind, change.reason) == ("rewrite", "snapshot 2 did more than add data files")


def test_a_change_of_the_definition_alone_is_one_of_metadata() -> None:
    change = changed(table(1, ONE, definition="others"))
    assert (change.kind, change.rows_added, change.rows_removed) == ("metadata", 0, 0)


def test_branches_and_tags_inside_a_table_are_named_when_they_hold_other_rows() -> None:
    two, aside = snapshot(2, 1), snapshot(3, 1)
    assert changed(table(2, ONE, two, aside, refs={"now": 2, "old": 1, "own": 3})).refs == ("own",)
    assert changed(table(2, ONE, two), None).refs == ()


def test_tables_come_and_go() -> None:
    assert told(changed(table(2, ONE, snapshot(2, 1)), None)) == ("create", (1, 2), (1, 2))
    assert told(changed(table(None), None)) == ("create", (), ())
    assert changed(table(2, ONE, snapshot(2, 1, "delete")), None).kind == "rewrite"
    assert changed(table(2, snapshot(2, 1)), None).kind == "rewrite"
    assert changed(None).kind == "drop"


@pytest.mark.parametrize(
    ("summary", "removed"),
    [
        ({"added_delete_files": 1}, None),
        ({"added_delete_files": 1, "added_position_deletes": 22}, 22),
        (
            {"added_delete_files": 1, "added_position_deletes": 5, "deleted_records": 7, "removed_position_deletes": 2},
            10,
        ),
        ({"removed_delete_files": 1, "removed_position_deletes": 5}, None),
        ({"removed_delete_files": 1, "removed_position_deletes": 5, "deleted_records": 7}, 2),
        ({"added_delete_files": 2, "added_position_deletes": 5, "added_equality_deletes": 1}, None),
        ({"deleted_records": 7}, 7),
    ],
)
def test_rows_are_removed_with_their_files_or_by_deletes(summary: dict[str, int], removed: int | None) -> None:
    change = changed(table(2, ONE, snapshot(2, 1, "overwrite", added_records=3, **summary)))
    assert (change.rows_added, change.rows_removed) == (3, removed)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(tmp_path) as made:
        yield made


def test_files_on_disk_are_classified_by_all_that_is_in_them(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, [1, 2])
    base = pointer_to(made)
    reader = IcebergTableReader()

    branch = tables.at(base)
    staged = append(branch, [3])
    change = reader.change(base, pointer_to(branch))
    assert (change.kind, change.snapshot_ids, change.rows_added) == ("append", (staged,), 1)
    with branch.transaction() as tx:
        tx.set_properties({"nessie.commit.id": "c0ffee", "nessie.gc.no-warning": "true", "gc.enabled": "false"})
    assert reader.change(base, pointer_to(branch)).kind == "append"
    context = cast("Context", SimpleNamespace(reader=reader))
    for key in ("gc.enabled", "write.metadata.delete-after-commit.enabled"):
        deleting = tables.at(pointer_to(branch))
        with deleting.transaction() as tx:
            tx.set_properties({key: "TRUE"})
        after = pointer_to(deleting)
        change = reader.change(base, after)
        assert change.kind == "rewrite", key
        with pytest.raises(InputError, match=f"'wap/x' sets the property '{key}' of .* to true"):
            require_safe_properties(context, base, after, "wap/x")
        require_safe_properties(context, after, after, "wap/x")
    with branch.transaction() as tx:
        tx.set_properties(note="mine")
    assert reader.change(base, pointer_to(branch)).kind == "rewrite"

    renamed = tables.at(base)
    with renamed.update_schema() as update:
        update.rename_column("id", "number")
    assert reader.change(base, pointer_to(renamed)).kind == "metadata"
    with renamed.update_schema() as update:
        update.rename_column("number", "id")
    # Back to the first schema: nothing has changed for those who read it.
    assert reader.change(base, pointer_to(renamed)).kind == "metadata"

    wider = tables.at(base)
    with wider.update_schema() as update:
        update.add_column("tips", LongType())
    append(wider, [4])
    assert reader.change(base, pointer_to(wider)).kind == "rewrite"
    assert reader.change(None, base).kind == "create"


def test_a_rebased_snapshot_keeps_its_id_but_is_another_state(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, [1, 2])
    base = pointer_to(made)
    made.overwrite(pa.table({"id": [7], "region": ["north"]}, schema=made.schema().as_arrow()))
    kept = append(made, [9])
    before, editor, reader = pointer_to(made), IcebergTableEditor(), IcebergTableReader()
    # What a revert of the overwrite does.
    after = editor.rebase(before, [kept], base, keep_row_ids=True)
    assert (before.snapshot_id, after.snapshot_id) == (kept, kept)
    assert (ids_at(before), ids_at(after)) == ([7, 9], [1, 2, 9])
    change = reader.change(before, after)
    assert told(change) == ("rewrite", (), (kept,))
    assert (change.rows_added, change.rows_removed) == (None, None)
    assert "doesn't descend" in (change.reason or "")
    shorter = [
        editor.trim_snapshots(one, before=datetime(2100, 1, 1, tzinfo=UTC), at_least=1) for one in (before, after)
    ]
    assert reader.change(before, shorter[0]).kind == "expire"
    assert reader.change(*shorter).kind == "rewrite"
    append(made, [10])
    assert reader.change(before, pointer_to(made)).kind == "append"
    assert reader.change(after, pointer_to(made)).kind == "rewrite"


FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "int"},
    {"id": 2, "name": "at", "required": False, "type": {"type": "struct", "fields": []}},
]


def defined(fields: list[dict[str, Any]], *, older: Sequence[list[dict[str, Any]]] = (), **other: Any) -> Any:
    """Return a table's definition as :func:`~lakegate.iceberg.lineage.state_of` makes it."""
    every = [*older, fields]
    schemas = [{"schema-id": at, "type": "struct", "fields": one} for at, one in enumerate(every)]
    last = max(field["id"] for one in every for field in one)
    rest = {"current-schema-id": len(older), "last-column-id": last, "schemas": schemas, "format-version": 2}
    properties = other.pop("properties", {})
    ids = (len(older), other.pop("spec_id", 0), 0)
    return {**rest, **other}, properties, ids


def field(number: int, name: str, kind: Any = "string", **other: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind, **other}


def inside(*fields: dict[str, Any]) -> dict[str, Any]:
    return {**FIELDS[1], "type": {"type": "struct", "fields": list(fields)}}


def named(*names: dict[str, Any]) -> dict[str, str]:
    return {"schema.name-mapping.default": json.dumps(names)}


def test_names_for_new_columns_are_a_part_of_them() -> None:
    known, new = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["at"]}], {"field-id": 3, "names": ["b"]}
    before = replace(BASE, definition=defined(FIELDS, properties=named(*known)))
    after = table(2, ONE, snapshot(2, 1, added_records=1, total_records=3))

    def kind(properties: dict[str, str]) -> str:
        now = defined([*FIELDS, field(3, "zone")], older=[FIELDS], properties=properties)
        return classify(before, replace(after, definition=now), lambda _: True, evolves=True).kind

    assert kind(named(*known, new)) == "evolve"
    assert kind(named({"field-id": 1, "names": ["at"]}, known[1], new)) == "rewrite"
    assert kind({}) == kind({"schema.name-mapping.default": "[{"}) == "rewrite"


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        (defined([*FIELDS, field(3, "zone")], older=[FIELDS]), "evolve"),
        (defined([{**FIELDS[0], "type": "long"}, FIELDS[1]], older=[FIELDS]), "evolve"),
        (defined([field(3, "zone"), *FIELDS], older=[FIELDS]), "evolve"),
        # What isn't the same rows read in the same way:
        (defined([*FIELDS, field(3, "zone", required=True)], older=[FIELDS]), "rewrite"),
        (defined([*FIELDS, field(3, "zone", **{"initial-default": "north"})], older=[FIELDS]), "rewrite"),
        (defined([{**FIELDS[0], "type": "string"}, FIELDS[1]], older=[FIELDS]), "rewrite"),
        (defined([{**FIELDS[0], "name": "key"}, FIELDS[1]], older=[FIELDS]), "rewrite"),
        (defined([{**FIELDS[0], "required": False}, FIELDS[1]], older=[FIELDS]), "rewrite"),
        (defined([FIELDS[0], inside(field(3, "x"))], older=[FIELDS]), "evolve"),
        (defined([FIELDS[0], inside(field(2, "x"))], older=[FIELDS]), "rewrite"),
        (defined([FIELDS[0], inside(field(3, "x", required=True))], older=[FIELDS]), "rewrite"),
        (defined([FIELDS[0], field(3, "at")], older=[FIELDS]), "rewrite"),
        (defined([*FIELDS, field(2, "zone")], older=[FIELDS]), "rewrite"),
        (defined([*FIELDS, field(3, "zone")], older=[FIELDS[:1]]), "rewrite"),
        (defined([*FIELDS, field(3, "zone")], older=[FIELDS], properties={"a": "b"}), "rewrite"),
        (defined([*FIELDS, field(3, "zone")], older=[FIELDS], spec_id=1), "rewrite"),
        (defined([*FIELDS, field(3, "zone")], older=[FIELDS], **{"format-version": 3}), "rewrite"),
    ],
)
def test_a_table_that_only_got_columns_keeps_its_rows(now: Any, kind: str) -> None:
    before = replace(BASE, definition=defined(FIELDS))
    after = replace(table(2, ONE, snapshot(2, 1, added_records=1, total_records=3)), definition=now)
    found = classify(before, after, lambda _: True, evolves=True)
    assert (found.kind, found.keeps_rows, found.only_adds) == (kind, kind == "evolve", False)
    # Nobody else's change is taken for one: a transaction's is audited as a whole.
    assert classify(before, after, lambda _: True).kind == "rewrite"
    # And rows must only have been added.
    gone = replace(after, snapshots=(ONE, snapshot(2, 1, "overwrite")))
    assert classify(before, gone, lambda _: True, evolves=True).kind == "rewrite"
