"""Metadata files that were made by hand: what can be read of them, and which of them are never published."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakegate.errors import InputError, LakegateError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.refs import TablePointer
from support.examples import examples
from support.iceberg_tables import IcebergTables, append, iceberg_tables, pointer_to

Document = dict[str, Any]


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(tmp_path) as made:
        yield made


@pytest.fixture
def states(tables: IcebergTables) -> tuple[TablePointer, TablePointer]:
    """A table, and what a branch made of it."""
    made = tables.create()
    append(made, [1, 2])
    base = pointer_to(made)
    append(made, [3])
    return base, pointer_to(made)


def document_at(pointer: TablePointer) -> Document:
    document: Document = json.loads(local_path(pointer.metadata_location).read_bytes())
    return document


def by_hand(pointer: TablePointer, content: Document | bytes) -> TablePointer:
    """Return the table with a metadata file that somebody wrote."""
    location = f"{pointer.metadata_location.removesuffix('.metadata.json')}-x.metadata.json"
    written = content if isinstance(content, bytes) else json.dumps(content).encode()
    local_path(location).write_bytes(written)
    return pointer.model_copy(update={"metadata_location": location})


def test_a_file_that_disagrees_with_the_catalog_is_not_published(states: tuple[TablePointer, TablePointer]) -> None:
    base, branch = states
    document = document_at(branch)
    old_main = {"main": {"snapshot-id": base.snapshot_id, "type": "branch"}}
    wrong = {
        "the catalog has an older one": branch.model_copy(update={"snapshot_id": base.snapshot_id}),
        "the catalog has none": branch.model_copy(update={"snapshot_id": -1}),
        "main is older": by_hand(branch, {**document, "refs": old_main}),
    }
    folder = local_path(branch.metadata_location).parent
    before = set(folder.iterdir())
    for case, pointer in wrong.items():
        told = f"(?s)nyc.trips.*{pointer.snapshot_id if pointer.snapshot_id != -1 else 'no snapshot'}.*"
        with pytest.raises(InputError, match=f"{told}{branch.snapshot_id}") as refused:
            IcebergTableReader().require_loadable(pointer, "wap/x")
        assert "on branch 'wap/x'" in str(refused.value), case
        assert "lakegate discard wap/x" in (refused.value.hint or ""), case
        editor = IcebergTableEditor()
        edits: list[Callable[[], object]] = [
            partial(editor.as_audited, pointer, base, [branch.snapshot_id]),
            partial(editor.rebase, pointer, [branch.snapshot_id], base),
            partial(editor.rebase, branch, [branch.snapshot_id], pointer),
            partial(editor.drop_files, pointer, ["file:///x"], {}),
        ]
        for edit in edits:
            with pytest.raises(InputError, match="can't tell which one is right"):
                edit()
        assert set(folder.iterdir()) == before, case
    for pointer in states:
        IcebergTableReader().require_loadable(pointer, "wap/x")


def _set(**members: Any) -> Callable[[Document], object]:
    return lambda document: document.update({key.replace("_", "-"): value for key, value in members.items()})


def _of_snapshot(key: str, value: Any) -> Callable[[Document], object]:
    return lambda document: document["snapshots"][-1].update({key: value})


def test_clocks_may_differ_by_a_minute(states: tuple[TablePointer, TablePointer]) -> None:
    document = document_at(states[1])
    document["snapshot-log"][0]["timestamp-ms"] = document["snapshot-log"][1]["timestamp-ms"] + 60_000
    document["last-updated-ms"] = document["snapshot-log"][1]["timestamp-ms"] - 60_000
    document["metadata-log"] = []
    IcebergTableReader().require_loadable(by_hand(states[1], document), "wap/x")


@pytest.mark.parametrize(
    "damage",
    [
        _of_snapshot("summary", None),
        _of_snapshot("sequence-number", None),
        _of_snapshot("sequence-number", "2"),
        _of_snapshot("sequence-number", 99),
        _of_snapshot("summary", {"operation": "append", "added-records": 1}),
        _of_snapshot("manifest-list", None),
        lambda document: document["snapshots"][-1].pop("manifest-list"),
        _set(format_version=True),
        _set(format_version=3),
        _set(format_version=3, next_row_id="2"),
        _set(default_spec_id=7),
        _set(current_schema_id=7),
        _set(default_sort_order_id=None),
        _set(refs=None),
        _set(properties={"n": 1}),
        lambda document: document["refs"].update(gone={"snapshot-id": 5, "type": "tag"}),
        lambda document: document["snapshots"].append(document["snapshots"][0]),
        lambda document: document["snapshot-log"][0].update({"timestamp-ms": document["last-updated-ms"] + 60_001}),
        lambda document: document["metadata-log"].append(
            {"metadata-file": "file:///x", "timestamp-ms": document["last-updated-ms"] + 60_001}
        ),
        lambda document: document.update({"last-updated-ms": document["last-updated-ms"] - 60_001}),
    ],
)
def test_what_spark_cannot_parse_is_not_published(
    states: tuple[TablePointer, TablePointer], damage: Callable[[Document], object]
) -> None:
    document = document_at(states[1])
    damage(document)
    pointer = by_hand(states[1], document)
    with pytest.raises(InputError, match=r"nyc\.trips"):
        IcebergTableReader().require_loadable(pointer, "wap/x")
    with pytest.raises(InputError, match=r"nyc\.trips"):
        IcebergTableEditor().as_audited(pointer, None, [])


def test_a_branch_leaves_what_the_table_was(states: tuple[TablePointer, TablePointer]) -> None:
    """Readers see older rows through it, by its id."""
    base, branch = states
    IcebergTableReader().require_loadable(branch, "wap/x", base)
    damages: dict[str, Callable[[Document], object]] = {
        "schema id 0": lambda document: document["schemas"][0]["fields"][0].update({"name": "other"}),
        "spec id 0": lambda document: document["partition-specs"][0]["fields"].append(
            {"name": "id", "transform": "identity", "source-id": 1, "field-id": 1000}
        ),
        f"snapshot id {base.snapshot_id}": lambda document: document["snapshots"][0].update(
            {"manifest-list": document["snapshots"][1]["manifest-list"]}
        ),
    }
    for what, damage in damages.items():
        document = document_at(branch)
        damage(document)
        with pytest.raises(InputError, match=f"changes what table nyc.trips was before: {what} is") as caught:
            IcebergTableReader().require_loadable(by_hand(branch, document), "wap/x", base)
        assert "lakegate discard wap/x" in (caught.value.hint or "")


def test_all_readers_see_the_same_schema(states: tuple[TablePointer, TablePointer]) -> None:
    document = document_at(states[1])
    document["schemas"].append({**document["schemas"][0], "schema-id": 1})
    pointer = by_hand(states[1], document)
    IcebergTableReader().require_loadable(pointer, "wap/x")
    with pytest.raises(InputError, match="the schema is 0, but 1 in the catalog"):
        IcebergTableReader().require_loadable(pointer.model_copy(update={"schema_id": 1}), "wap/x")


def test_metadata_is_utf_8_without_a_mark_and_compressed_as_it_is_named(
    states: tuple[TablePointer, TablePointer],
) -> None:
    text = json.dumps({**document_at(states[1]), "unknown": 1.5})
    IcebergTableReader().require_loadable(by_hand(states[1], text.encode()), "wap/x")
    for content in (
        text.encode("utf-16"),
        text.encode("utf-8-sig"),
        text.replace("1.5", "NaN").encode(),
        gzip.compress(text.encode()),
    ):
        pointer = by_hand(states[1], content)
        with pytest.raises(InputError, match=r"nyc\.trips"):
            IcebergTableReader().require_loadable(pointer, "wap/x")
        with pytest.raises(InputError, match=r"nyc\.trips"):
            IcebergTableEditor().as_audited(pointer, None, [])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TablePointer, TablePointer]]:
    with iceberg_tables(tmp_path_factory.mktemp("damaged")) as made:
        table = made.create()
        append(table, [1, 2])
        base = pointer_to(table)
        append(table, [3])
        table.manage_snapshots().create_tag(base.snapshot_id, "kept").commit()
        yield base, pointer_to(table)


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the ways to all members of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inner for place in [(*at, key), *places_in(item, (*at, key))]]


POINTED = ("snapshot_id", "schema_id", "spec_id", "sort_order_id")
ODD: list[Any] = [None, [], [None], {}, {"a": None}, 0, -1, 2**70, 1.5, True, "", "x", "\u0663", "x" * 300, ["x"], [{}]]


@settings(max_examples=examples(50, 80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_metadata_is_read_or_refused_in_our_words(
    written: tuple[TablePointer, TablePointer], data: st.DataObject
) -> None:
    base, branch = written
    document = document_at(branch)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(places_in(document) or [("location",)]))
        parent: Any = document
        for key in way:
            parent = parent[key]
        if data.draw(st.booleans()) and isinstance(parent, dict):
            parent.pop(last, None)
        else:
            parent[last] = deepcopy(data.draw(st.sampled_from(ODD)))
    pointer = by_hand(branch, document)
    if data.draw(st.booleans()):
        pointer = pointer.model_copy(
            update={data.draw(st.sampled_from(POINTED)): data.draw(st.sampled_from((-1, 0, 7)))}
        )
    reader, editor = IcebergTableReader(), IcebergTableEditor()
    for use in (
        lambda: reader.metadata(pointer).rows,
        lambda: reader.snapshots(pointer),
        lambda: reader.change(base, pointer),
        lambda: reader.change(pointer, branch),
        lambda: reader.require_loadable(pointer, "wap/x"),
        lambda: list(reader.files(pointer)),
        lambda: reader.added_files(pointer, [branch.snapshot_id]),
        lambda: list(reader.reach(pointer)),
        lambda: editor.as_audited(pointer, base, [branch.snapshot_id]),
        lambda: editor.rebase(pointer, [branch.snapshot_id], base),
        lambda: editor.rebase(branch, [branch.snapshot_id], pointer),
        lambda: editor.drop_files(pointer, [file.path for file in reader.files(branch)], {}),
    ):
        with suppress(LakegateError):
            use()
