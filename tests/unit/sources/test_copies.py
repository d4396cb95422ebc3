"""What an engine on another machine reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.config import StorageSettings
from lakegate.errors import RetryableError, SourceError
from lakegate.progress import SilentNarrator
from lakegate.sources import changed_files, copies, discover
from lakegate.sources.copies import drop_uploads, upload, write
from support.memory_store import MemoryStore


def test_files_of_this_machine_are_copied_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, stores = MemoryStore(), StorageSettings()
    monkeypatch.setattr(copies, "open_store", lambda *_: store)
    monkeypatch.setattr("lakegate.sources.files.open_store", lambda *_: store)
    source = tmp_path / "a b.parquet"
    pq.write_table(pa.table({"n": [1]}), source)
    batch = discover([str(source)])
    copied = upload(batch, "s3://lake/w", "r1", stores, SilentNarrator())
    (target,) = store.objects
    assert target.startswith("s3://lake/w/.lakegate-sources/r1/")
    assert (copied.read_uris, copied.uris, store.objects[target]) == ((target,), batch.uris, source.read_bytes())
    assert upload(copied, "s3://lake/w", "r1", stores, SilentNarrator()) == copied
    assert not changed_files(copied, stores)
    drop_uploads(copied.files, stores)
    assert not store.objects
    assert changed_files(copied, stores) == list(copied.files)
    store.trouble = PermissionError(13, "denied")
    with pytest.raises(SourceError, match=r"can't be copied to s3://lake/w/.*: denied"):
        upload(batch, "s3://lake/w", "r1", stores, SilentNarrator())


def test_a_full_disk_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1}]', encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    with pytest.raises(RetryableError, match=r"a\.json' can't be copied to .*copies: No space left") as caught:
        discover([str(tmp_path / "a.json")], copies=tmp_path / "copies")
    assert caught.value.context["path"] == str(tmp_path / "a.json")
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_folder_for_copies_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match=r"Not a directory|File exists") as caught:
        write((), pa.schema([("id", pa.int64())]), tmp_path / "file" / "r1" / "rows.parquet")
    assert str(caught.value.filename).startswith(str(tmp_path / "file"))
