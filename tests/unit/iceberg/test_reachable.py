"""What metadata reaches, on tables that PyIceberg wrote; and the store of local files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakegate.errors import InputError, LakegateError, NotFoundError
from lakegate.iceberg.files import LocalFileStore, local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from support.pyiceberg_catalog import DictCatalog

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with closing(DictCatalog(f"file://{tmp_path}/lake")) as catalog:
        yield catalog.create_table("nyc.trips", schema=ROWS.schema)


def at(location: str) -> TablePointer:
    return TablePointer(
        table=TableIdentifier.parse("nyc.trips"),
        content_id=None,
        metadata_location=location,
        snapshot_id=-1,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )


def on_disk(tmp_path: Path) -> set[str]:
    return {file.path for file in LocalFileStore(f"file://{tmp_path}").list(f"file://{tmp_path}/lake")}


def test_a_state_reaches_all_its_snapshots_and_no_other_metadata_file(table: Table, tmp_path: Path) -> None:
    locations = [table.metadata_location]
    for _ in range(3):
        table.append(ROWS)
        locations.append(table.metadata_location)
    table.overwrite(ROWS)
    locations.append(table.metadata_location)
    reader = IcebergTableReader()
    for old, new in pairwise(locations):
        assert set(reader.reach(at(old))) - {old} < set(reader.reach(at(new)))
    assert set(reader.reach(at(locations[-1]))) | set(locations) == on_disk(tmp_path)
    assert list(reader.reach(at(locations[0]))) == locations[:1]


def test_what_was_walked_is_left_out(table: Table) -> None:
    table.append(ROWS)
    first = table.metadata_location
    table.append(ROWS)
    second = table.metadata_location
    reader = IcebergTableReader()
    walked: set[str] = set()
    before = list(reader.reach(at(first), walked))
    added = list(reader.reach(at(second), walked))
    assert set(before).isdisjoint(added)
    assert {*before, *added} - {first} == set(reader.reach(at(second)))
    assert len(added) == 4  # metadata file, manifest list, manifest and data file of the second append
    assert list(reader.reach(at(second), walked)) == []


def test_statistics_and_old_manifest_lists_are_reached(table: Table, tmp_path: Path) -> None:
    table.append(ROWS)
    content = json.loads(local_path(table.metadata_location).read_text())
    content["statistics"] = [{"statistics-path": "file:/s.puffin"}]
    content["partition-statistics"] = [{"statistics-path": "file:/p.parquet"}]
    (snapshot,) = content["snapshots"]
    (manifest,) = (path for path in on_disk(tmp_path) if path.endswith("-m0.avro"))
    del snapshot["manifest-list"]
    snapshot["manifests"] = [manifest]
    other = tmp_path / "v1.gz.metadata.json"
    other.write_bytes(gzip.compress(json.dumps(content).encode()))
    (data,) = (path for path in on_disk(tmp_path) if path.endswith(".parquet"))
    found = set(IcebergTableReader().reach(at(str(other))))
    assert found == {"file:/s.puffin", "file:/p.parquet", manifest, data, str(other)}
    del content["statistics"], content["partition-statistics"]
    content["format-version"] = 1
    other.write_bytes(gzip.compress(json.dumps(content).encode()))
    pointer = at(str(other)).model_copy(update={"snapshot_id": snapshot["snapshot-id"]})
    reader = IcebergTableReader()
    for read in (lambda: list(reader.files(pointer)), lambda: reader.read_rows(pointer)):
        with pytest.raises(InputError, match=r"of table nyc\.trips has no manifest list") as caught:
            read()
        assert "rewrite_manifests('nyc.trips')" in (caught.value.hint or "")


def test_what_is_damaged_is_never_taken_for_walked(table: Table, tmp_path: Path) -> None:
    table.append(ROWS)
    (manifest,) = (local_path(path) for path in on_disk(tmp_path) if path.endswith("-m0.avro"))
    content = manifest.read_bytes()
    reader = IcebergTableReader()
    walked: set[str] = set()
    manifest.write_bytes(content[:-30])
    with pytest.raises(LakegateError, match=r"nyc\.trips"):
        list(reader.reach(at(table.metadata_location), walked))
    manifest.unlink()
    with pytest.raises(NotFoundError):
        list(reader.reach(at(table.metadata_location), walked))
    assert walked == set()
    manifest.write_bytes(content)
    assert len(list(reader.reach(at(table.metadata_location), walked))) == 4


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"table-uuid": null}', '{"view-uuid": "x", "versions": []}'])
def test_what_is_not_table_metadata_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "v1.metadata.json").write_text(text)
    with pytest.raises(InputError, match="damaged"):
        list(IcebergTableReader().reach(at(f"file:{tmp_path}/v1.metadata.json")))


def test_deleting_leaves_no_empty_folders_and_is_idempotent(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    for name in ("t/data/1", "t/data/2", "u/data/1"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    store = LocalFileStore(root.as_uri())
    gone = [f"file:{root}/t/data/1", f"{root}/u/data/1"]
    store.delete(gone)
    store.delete(gone)
    assert [path.relative_to(root).as_posix() for path in sorted(root.rglob("*"))] == ["t", "t/data", "t/data/2"]
    store.delete([f"{root}/t/data/2"])
    assert root.is_dir()


def test_nothing_outside_the_root_is_deleted(tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.touch()
    inside = tmp_path / "lake" / "y"
    inside.parent.mkdir()
    inside.touch()
    store = LocalFileStore(f"file://{tmp_path}/lake")
    for path in (f"file:{tmp_path}/lake/../x", str(outside), f"s3://{tmp_path}/lake/y", f"{tmp_path}/lake"):
        with pytest.raises(InputError, match="isn't in the warehouse"):
            store.delete([str(inside), path])
    assert outside.exists()
    assert inside.exists()
