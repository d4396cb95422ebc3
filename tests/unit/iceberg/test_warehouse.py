"""The warehouse's files in an object store: new ones only, whole or not at all, and nothing outside the root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate import components
from lakegate.config import GcsSettings, S3Settings, Settings, StorageSettings
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    InputError,
    LakegateError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.iceberg import files
from lakegate.iceberg.files import (
    ObjectFileStore,
    open_file_store,
    require_same_catalog,
    require_writable,
)
from lakegate.iceberg.spark_options import spark_file_io
from lakegate.progress import SilentNarrator
from lakegate.storage.objects import ObjectStore, StoredObject
from support.memory_store import MemoryStore

ROOT = "s3://bucket/a/lake"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def use(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    monkeypatch.setattr(files, "open_store", lambda _uri, _settings: store)


def test_the_root_lists_its_files_and_deletes_no_others(store: MemoryStore) -> None:
    store.objects = {f"{ROOT}/{name}": b"1" for name in (".lakegate", "nyc/t_1/data/a", "nyc/t_1/data/b")}
    store.objects |= {f"{ROOT}2/c": b"1", "s3://bucket/landing/d": b"1"}
    files = ObjectFileStore(f"{ROOT}/", store)
    assert [file.path for file in files.list(ROOT)] == [f"{ROOT}/nyc/t_1/data/a", f"{ROOT}/nyc/t_1/data/b"]
    for outside in (f"{ROOT}2/c", "s3://bucket/landing/d", ROOT, "file:///x"):
        with pytest.raises(InputError, match="isn't in the warehouse"):
            files.delete([f"{ROOT}/nyc/t_1/data/a", outside])
    assert len(store.objects) == 5
    files.delete([f"{ROOT}/nyc/t_1/data/a", f"{ROOT}/gone"])
    assert f"{ROOT}/nyc/t_1/data/a" not in store.objects


def test_a_store_that_refuses_is_told_of(store: MemoryStore) -> None:
    store.trouble = PermissionError(13, "access denied (AccessDenied)", ROOT)
    files = ObjectFileStore(ROOT, store)
    with pytest.raises(EngineError, match=r"s3://bucket/a/lake can't be listed: access denied") as listing:
        list(files.list(ROOT))
    with pytest.raises(EngineError, match="s3://bucket/a/lake can't be deleted from: access denied") as deleting:
        files.delete([f"{ROOT}/x"])
    assert listing.value.hint
    assert deleting.value.hint


def test_a_warehouse_is_tried_before_it_is_written_to(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, store)
    for _ in range(2):
        require_writable(f"{ROOT}/", StorageSettings())
    assert list(store.objects) == [f"{ROOT}/{files.MARKER}"]
    monkeypatch.setattr(files, "open_store", lambda *_: pytest.fail("nothing is to be tried"))
    require_writable(f"file://{tmp_path}/a lake", StorageSettings())
    assert (tmp_path / "a lake" / files.MARKER).exists()


@pytest.mark.parametrize("name", ["a lake", "a%20lake", "é#1"])
def test_a_local_warehouse_is_one_folder_for_its_marker_its_tables_and_gc(tmp_path: Path, name: str) -> None:
    made = components.Components(tmp_path / name, Settings(), session=None, narrator=SilentNarrator())
    require_writable(made.warehouse, StorageSettings(), "ours")
    folder = tmp_path / name / ".lakegate" / "warehouse"
    assert (folder / files.MARKER).exists()
    # What Hadoop and PyArrow make of a table's location: nothing in it is decoded.
    assert str(folder / "t") == f"{made.warehouse}/t".removeprefix("file://")
    assert [file.path for file in open_file_store(made.warehouse).list(made.warehouse)] == [
        f"{made.warehouse}/{files.MARKER}"
    ]
    with pytest.raises(ConfigurationError, match="belongs to another catalog"):
        require_same_catalog(made.warehouse, StorageSettings(), "theirs")


def test_a_warehouse_that_another_catalog_owns_is_not_collected(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, store)
    for root in (ROOT, f"file://{tmp_path}/a lake"):
        require_same_catalog(root, StorageSettings(), "ours")  # nobody's yet
        require_writable(root, StorageSettings(), "ours")
        require_same_catalog(root, StorageSettings(), "ours")
        for other in ("theirs", None):
            with pytest.raises(ConfigurationError, match=r"belongs to another catalog \(ours"):
                require_same_catalog(root, StorageSettings(), other)
    (tmp_path / "a lake" / files.MARKER).write_text("An older one.")
    require_same_catalog(f"file://{tmp_path}/a lake", StorageSettings(), "theirs")


def test_a_misspelt_bucket_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Making(MemoryStore):
        def list(self, prefix: str) -> Iterator[StoredObject]:
            raise SourceError(f"The bucket of '{prefix}' doesn't exist.")

    making = Making()
    use(monkeypatch, making)
    with pytest.raises(ConfigurationError, match="doesn't exist"):
        require_writable(ROOT, StorageSettings())
    assert making.objects == {}


@pytest.mark.parametrize(
    "trouble",
    [
        PermissionError(13, "access denied (AccessDenied: no)", ROOT),
        SourceError("The bucket of 's3://bucket/a/lake/.lakegate' doesn't exist.", hint="Check its name."),
        ConfigurationError("S3 doesn't accept our credentials.", hint="Give credentials."),
    ],
)
def test_a_warehouse_that_cannot_be_written_to(trouble: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, MemoryStore(trouble=trouble))
    with pytest.raises(ConfigurationError) as caught:
        require_writable(ROOT, StorageSettings())
    reason = trouble.message if isinstance(trouble, LakegateError) else str(trouble.args[1])
    assert caught.value.message == f"The warehouse {ROOT} can't be used: {reason.rstrip('.')}."
    assert str(caught.value.hint).startswith("Nothing was written. ")
    assert caught.value.context["setting"] == "catalog.warehouse"


def test_a_store_that_is_away_is_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, MemoryStore(trouble=StorageUnavailableError("S3 is away.")))
    with pytest.raises(StorageUnavailableError):
        require_writable(ROOT, StorageSettings())


def test_spark_is_told_where_the_store_is_and_no_secret() -> None:
    storage = StorageSettings(s3=S3Settings(endpoint="http://h:1", region="r", path_style=True))
    assert spark_file_io("file:///lake", storage) == {}
    implementation = {"io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
    assert spark_file_io("abfss://c@acme.dfs.core.windows.net/x", StorageSettings()) == implementation
    google = StorageSettings(gcs=GcsSettings(endpoint="http://h:2"))
    assert spark_file_io("gs://lake/x", google) == implementation | {"gcs.service.host": "http://h:2"}
    assert spark_file_io(ROOT, storage) == implementation | {
        "client.region": "r",
        "s3.endpoint": "http://h:1",
        "s3.path-style-access": "true",
    }
