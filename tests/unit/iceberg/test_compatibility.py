"""Whether files fit a table, and whether delete files apply to them: by the metadata alone."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.typedef import Record

from lakegate.errors import NotReplayableError
from lakegate.iceberg.lineage import check_layout, check_lineage, check_schema
from lakegate.iceberg.manifests import FileEntry, may_apply
from lakegate.iceberg.metadata import unpartitioned_specs
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

NAME = TableIdentifier.parse("nyc.trips")
PATH_COLUMN = 2147483546


def fields(*columns: tuple[int, str, Any], required: bool = False) -> list[dict[str, Any]]:
    return [{"id": i, "name": name, "required": required, "type": kind} for i, name, kind in columns]


def struct(*columns: tuple[int, str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields(*columns)}


def listing(kind: Any, element_id: int = 5, *, required: bool = False) -> dict[str, Any]:
    return {"type": "list", "element-id": element_id, "element": kind, "element-required": required}


def mapping(value: Any) -> dict[str, Any]:
    return {"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value": value, "value-required": False}


def metadata(columns: list[dict[str, Any]], uuid: str = "u") -> dict[str, Any]:
    schema = {"schema-id": 0, "fields": columns}
    return {"table-uuid": uuid, "current-schema-id": 0, "schemas": [schema]}


POINTER = TablePointer(
    table=NAME, content_id=None, metadata_location="x", snapshot_id=1, schema_id=0, spec_id=0, sort_order_id=0
)


@pytest.mark.parametrize(
    ("ours", "theirs", "column"),
    [
        ("int", "long", None),
        ("long", "int", "a"),
        ("float", "double", None),
        ("double", "float", "a"),
        ("decimal(9, 2)", "decimal(12, 2)", None),
        ("decimal(9,2)", "decimal(9, 2)", None),
        ("decimal(12, 2)", "decimal(9, 2)", "a"),
        ("decimal(9, 2)", "decimal(12, 3)", "a"),
        ("int", "string", "a"),
        ("date", "timestamp", "a"),
        ("int", struct((2, "b", "int")), "a"),
        (struct((2, "b", "int")), struct((2, "b", "long"), (3, "c", "int")), None),
        (struct((2, "b", "int"), (3, "c", "int")), struct((2, "b", "int")), "a.c"),
        (struct((2, "b", "long")), struct((2, "b", "int")), "a.b"),
        (listing("int"), listing("long"), None),
        (listing("string"), listing("long"), "a.element"),
        (listing("int"), listing("int", 9), "a.element"),
        (listing("int"), listing("int", required=True), "a.element"),
        (listing("int", required=True), listing("int"), None),
        (mapping("int"), mapping("long"), None),
        (mapping(struct((2, "b", "int"))), mapping(struct((8, "b", "int"))), "a.value.b"),
        (listing("int"), mapping("int"), "a"),
    ],
)
def test_types_that_files_can_be_read_as(ours: Any, theirs: Any, column: str | None) -> None:
    source, onto = metadata(fields((1, "a", ours))), metadata(fields((1, "a", theirs)))
    if column is None:
        check_schema(source, POINTER, onto, POINTER)
        return
    with pytest.raises(NotReplayableError) as caught:
        check_schema(source, POINTER, onto, POINTER)
    assert caught.value.context == {"table": "nyc.trips", "column": column}


def test_required_columns_and_names() -> None:
    one = fields((1, "a", "int"))
    required = fields((2, "b", "int"), required=True)
    with pytest.raises(NotReplayableError, match="column 'b' was added and is required"):
        check_schema(metadata(one), POINTER, metadata(one + required), POINTER)
    check_schema(metadata(one), POINTER, metadata([*one, {**required[0], "initial-default": 1}]), POINTER)
    check_schema(metadata(fields((1, "a", "int"), required=True)), POINTER, metadata(one), POINTER)
    with pytest.raises(NotReplayableError, match="column 'a' is now required"):
        check_schema(metadata(one), POINTER, metadata(fields((1, "a", "int"), required=True)), POINTER)
    with pytest.raises(NotReplayableError, match="column 'a' is called 'z' in the table"):
        check_schema(metadata(one), POINTER, metadata(fields((1, "z", "int"))), POINTER)


def test_tables_of_one_name_that_were_created_at_the_same_time() -> None:
    def created(uuid: str, parent: int | None, **known: str) -> dict[str, Any]:
        return {
            "table-uuid": uuid,
            "snapshots": [{"snapshot-id": 7, "parent-snapshot-id": parent}],
            "properties": {key.replace("_", "."): value for key, value in known.items()},
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
        }

    ours = created("u", None, nessie_commit_id="c1", note="mine")
    check_lineage(ours, [7], created("v", None, nessie_commit_id="c2", note="mine", more="x"), POINTER)
    check_lineage(ours, [7], created("u", 6), POINTER)
    with pytest.raises(
        NotReplayableError, match="another run created it meanwhile, with property note = None, not 'mine'"
    ):
        check_lineage(ours, [7], created("v", None), POINTER)
    by = [{"source-id": 1, "field-id": 1000, "name": "a", "transform": "identity"}]
    parted = created("v", None, note="mine") | {"partition-specs": [{"spec-id": 0, "fields": by}]}
    with pytest.raises(NotReplayableError, match="another partitioning"):
        check_lineage(ours, [7], parted, POINTER)
    ordered = created("v", None, note="mine") | {"sort-orders": [{"order-id": 0, "fields": by}]}
    with pytest.raises(NotReplayableError, match="another sort order"):
        check_lineage(ours, [7], ordered, POINTER)
    with pytest.raises(NotReplayableError, match="replaced by another table"):
        check_lineage(created("u", 6), [7], created("v", None), POINTER)


def test_partition_specs_and_sort_orders_of_one_id() -> None:
    by = {"source-id": 1, "field-id": 1000, "name": "a", "transform": "identity"}
    ours = {"partition-specs": [{"spec-id": 0, "fields": [by]}], "sort-orders": [{"order-id": 1, "fields": [by]}]}
    check_layout(ours, {**ours, "sort-orders": []}, POINTER, {0})
    with pytest.raises(NotReplayableError, match=r"partition spec 0 \(by a\)"):
        check_layout(ours, {**ours, "partition-specs": [{"spec-id": 0, "fields": []}]}, POINTER, {0})
    with pytest.raises(NotReplayableError, match="partition spec 0"):
        check_layout(ours, {**ours, "partition-specs": []}, POINTER, {0})
    check_layout(ours, {**ours, "partition-specs": []}, POINTER, set())
    with pytest.raises(NotReplayableError, match="sort order 1"):
        check_layout(ours, {**ours, "sort-orders": [{"order-id": 1, "fields": []}]}, POINTER, {0})


def entry(
    path: str,
    sequence: int,
    content: int = 0,
    partition: Record | None = None,
    referenced: str | None = None,
    **more: Any,
) -> FileEntry:
    file = DataFile.from_args(
        content=DataFileContent(content), file_path=path, partition=Record() if partition is None else partition, **more
    )
    with_reference = DataFile(*(file[position] for position in range(len(file))), referenced)
    return FileEntry(1, 1, sequence, sequence, with_reference, b"")


@pytest.mark.parametrize(
    ("delete", "spec_id", "applies"),
    [
        (entry("d", 5, 1), 0, True),
        (entry("d", 4, 1), 0, False),
        (entry("d", 5, 1), 1, False),
        (entry("d", 5, 1, Record("x")), 0, False),
        (entry("d", 5, 1, lower_bounds={PATH_COLUMN: b"f"}, upper_bounds={PATH_COLUMN: b"f"}), 0, True),
        (entry("d", 5, 1, lower_bounds={PATH_COLUMN: b"g"}, upper_bounds={PATH_COLUMN: b"g"}), 0, False),
        (entry("d", 5, 1, referenced="f"), 0, True),
        (entry("d", 5, 1, referenced="g"), 0, False),
        (entry("d", 5, 2), 0, False),
        (entry("d", 6, 2), 0, True),
        (entry("d", 6, 2), 1, True),
        (entry("d", 6, 2, Record("x")), 0, False),
    ],
)
def test_which_delete_files_may_apply(delete: FileEntry, spec_id: int, applies: bool) -> None:
    assert may_apply(delete, spec_id, entry("f", 5), 0) is applies


@pytest.mark.parametrize("content", [1, 2])
def test_delete_files_in_the_partition_of_nan_may_apply(content: int) -> None:
    delete, file = (entry(path, number, content, Record(float("nan"))) for path, number in (("d", 6), ("f", 5)))
    assert may_apply(delete, 0, file, 0)
    assert not may_apply(delete, 0, entry("f", 5, 0, Record(1.5)), 0)


def test_equality_deletes_of_a_spec_whose_fields_were_all_dropped_may_apply_everywhere() -> None:
    file = entry("f", 5, 0, Record("x"))
    assert may_apply(entry("d", 6, 2, Record(None)), 1, file, 0, unpartitioned={1})
    assert not may_apply(entry("d", 6, 1, Record(None)), 1, file, 0, unpartitioned={1})
    fields = [{"field-id": 1000 + at, "source-id": at, "name": f"f{at}", "transform": "void"} for at in (1, 2)]
    specs: tuple[list[dict[str, Any]], ...] = ([], fields, [fields[0], {**fields[1], "transform": "identity"}])
    document = {"partition-specs": [{"spec-id": at, "fields": spec} for at, spec in enumerate(specs)]}
    assert unpartitioned_specs(document) == {0, 1}


def test_equality_deletes_in_the_partition_of_null_apply_to_no_other_partition() -> None:
    delete = entry("d", 6, 2, Record(None))
    assert not may_apply(delete, 0, entry("f", 5, 0, Record("x")), 0)
    assert may_apply(delete, 0, entry("f", 5, 0, Record(None)), 0)
