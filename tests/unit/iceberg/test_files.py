"""A table's files: new ones only, whole or not at all, here and in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from unittest.mock import Mock

import pytest

from lakegate.errors import ConfigurationError, EngineError, InputError, SourceError
from lakegate.iceberg.files import TableFiles, local_path, read_errors
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from support.memory_store import MemoryStore

ROOT = "s3://bucket/a/lake"
POINTER = TablePointer(
    table=TableIdentifier.parse("nyc.trips"),
    content_id=None,
    metadata_location=f"{ROOT}/t/metadata/v1.metadata.json",
    snapshot_id=-1,
    schema_id=0,
    spec_id=0,
    sort_order_id=0,
)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr("lakegate.iceberg.files.open_store", lambda _uri, _settings: made)
    return made


@pytest.fixture(params=["here", "store"])
def location(request: pytest.FixtureRequest, tmp_path: Path, store: MemoryStore) -> str:
    return (tmp_path / "a" / "b").as_uri() if request.param == "here" else f"{ROOT}/a/b"


def test_new_files_are_new(location: str) -> None:
    files = TableFiles()
    assert not files.exists(location)
    with pytest.raises(FileNotFoundError):
        files.content(location)
    files.create(location, b"1234", POINTER)
    assert files.exists(location)
    assert files.content(location) == b"1234"
    with pytest.raises(EngineError, match=r"Can't write the metadata of table nyc\.trips to .*: "):
        files.create(location, b"5", POINTER)
    assert files.content(location) == b"1234"


def test_a_file_that_could_not_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = (tmp_path / "x").as_uri()

    class Full:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

        def write(self, content: bytes) -> int:
            return len(content)

    def full(path: Path, mode: str) -> Full:
        assert mode == "xb"
        path.touch()
        return Full()

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(EngineError, match="No space left on device"):
        TableFiles().create(location, b"1", POINTER)
    assert not local_path(location).exists()


def test_a_location_of_no_known_store_is_refused() -> None:
    with pytest.raises(InputError, match="hdfs://lake/t"):
        TableFiles().content("hdfs://lake/t")


def test_a_file_is_only_known_to_be_missing_when_its_store_says_so(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nowhere in ("nowhere://lake/t", "s3:///t", "no path"):
        assert not TableFiles().exists(nowhere)
    unauthenticated = ConfigurationError("No credentials for S3.")
    for trouble in (unauthenticated, SourceError("The bucket doesn't exist."), PermissionError(13, "denied")):
        monkeypatch.setattr(store, "stat", Mock(side_effect=trouble))
        with pytest.raises(type(trouble)):
            TableFiles().exists(f"{ROOT}/t")
    monkeypatch.setattr("lakegate.iceberg.files.open_store", Mock(side_effect=unauthenticated))
    with pytest.raises(ConfigurationError):
        TableFiles().exists("gs://bucket/t")


def test_a_file_that_may_not_be_read_or_written_is_a_matter_of_settings(store: MemoryStore) -> None:
    denied = PermissionError(13, "access denied (AccessDenied)", ROOT)
    with pytest.raises(ConfigurationError, match=r"Metadata file can.t be read: access denied") as reads:
        _raise(denied)
    store.trouble = denied
    with pytest.raises(ConfigurationError, match=r"table nyc\.trips to s3://.*: access denied") as writes:
        TableFiles().create(f"{ROOT}/t/metadata/x.avro", b"1", POINTER)
    assert "catalog.warehouse" in str(reads.value.hint)
    assert "catalog.warehouse" in str(writes.value.hint)


def _raise(error: Exception) -> None:
    with read_errors("Metadata file", POINTER):
        raise error
