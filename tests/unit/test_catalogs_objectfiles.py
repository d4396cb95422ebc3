"""The warehouse's files in an object store: new ones only, whole or not at all, and nothing outside the root."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pytest

from lakegate import wiring
from lakegate.catalogs import warehouse
from lakegate.catalogs.editor.files import TableFiles
from lakegate.catalogs.fileio import TableFileIO
from lakegate.catalogs.filestore import LocalFileStore, ObjectFileStore, open_file_store
from lakegate.catalogs.localfiles import LocalFileIO
from lakegate.catalogs.metadata import reading
from lakegate.catalogs.objectfiles import NewObjectsIO, ObjectFileIO
from lakegate.catalogs.warehouse import require_writable, spark_file_io
from lakegate.config import CatalogSettings, GcsSettings, S3Settings, Settings, StorageSettings
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    InputError,
    LakegateError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from lakegate.narration import SilentNarrator
from lakegate.storage import opening
from lakegate.storage.objects import ObjectStore, StoredObject

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


class MemoryStore:
    """Objects in a dictionary; implements ``ObjectStore``."""

    def __init__(self, *, trouble: Exception | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble = trouble

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._fail()
        return (self.stat(uri) for uri in sorted(self.objects) if uri.startswith(prefix))

    def stat(self, uri: str) -> StoredObject:
        if uri not in self.objects:
            raise FileNotFoundError(uri)
        content = self.objects[uri]
        return StoredObject(uri, len(content), datetime(2026, 1, 1, tzinfo=UTC), str(hash(content)))

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        assert (etag, size_bytes) == (self.stat(uri).etag, self.stat(uri).size_bytes)
        return io.BytesIO(self.objects[uri])

    def create(self, uri: str, content: bytes) -> None:
        self._fail()
        if uri in self.objects:
            raise FileExistsError(uri)
        self.objects[uri] = content

    def delete(self, uris: Sequence[str]) -> None:
        self._fail()
        for uri in uris:
            self.objects.pop(uri, None)

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def use(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    monkeypatch.setattr(opening, "open_store", lambda _uri, _settings: store)


def test_a_new_file_is_there_when_all_of_it_was_written(store: MemoryStore) -> None:
    files = NewObjectsIO(store)
    location = f"{ROOT}/t/metadata/v1.metadata.json"
    output = files.new_output(location)
    assert not output.exists()
    with output.create() as stream:
        assert (stream.write(b"ab"), stream.write(b"cde")) == (2, 3)
        assert stream.tell() == 5
        assert store.objects == {}
        stream.close()
    assert store.objects == {location: b"abcde"}
    assert (output.exists(), len(output)) == (True, 5)
    found = output.to_input_file()
    assert (found.exists(), len(found), found.open().read()) == (True, 5, b"abcde")
    assert not files.new_input(f"{location}2").exists()


def test_a_file_that_could_not_be_written_is_not_there(store: MemoryStore) -> None:
    with pytest.raises(KeyError), NewObjectsIO(store).new_output(f"{ROOT}/x").create() as stream:
        stream.write(b"half of it")
        raise KeyError
    assert store.objects == {}


def test_files_are_not_overwritten_and_not_deleted(store: MemoryStore) -> None:
    store.objects[f"{ROOT}/x"] = b"old"
    with pytest.raises(FileExistsError), NewObjectsIO(store).new_output(f"{ROOT}/x").create() as stream:
        stream.write(b"new")
    for act in (
        lambda: NewObjectsIO(store).new_output(f"{ROOT}/x").create(overwrite=True),
        lambda: NewObjectsIO(store).delete(f"{ROOT}/x"),
        lambda: ObjectFileIO(store).delete(ObjectFileIO(store).new_input(f"{ROOT}/x")),
        lambda: ObjectFileIO(store).new_output(f"{ROOT}/y"),
    ):
        with pytest.raises(PermissionError):
            act()
    assert store.objects == {f"{ROOT}/x": b"old"}


def test_files_are_reached_by_where_they_lie(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, store)
    assert isinstance(TableFileIO().reading("file:///lake/t"), LocalFileIO)
    assert isinstance(TableFileIO().writing("s3://lake/t"), NewObjectsIO)
    assert isinstance(TableFileIO().reading("gs://lake/t"), ObjectFileIO)


def test_what_the_store_says_is_passed_on() -> None:
    def read() -> bytes:
        raise StorageUnavailableError("S3 is away.")

    with pytest.raises(StorageUnavailableError, match="S3 is away"):
        reading("Metadata file", POINTER, read)


def test_the_root_lists_its_files_and_deletes_no_others(store: MemoryStore) -> None:
    store.objects = {f"{ROOT}/{name}": b"1" for name in (".lakegate", "nyc/t_1/data/a", "nyc/t_1/data/b")}
    store.objects |= {f"{ROOT}2/c": b"1", "s3://bucket/landing/d": b"1"}
    files = ObjectFileStore(f"{ROOT}/", store)
    assert [file.path for file in files.list(ROOT)] == [f"{ROOT}/nyc/t_1/data/a", f"{ROOT}/nyc/t_1/data/b"]
    for outside in (f"{ROOT}2/c", "s3://bucket/landing/d", ROOT, "file:///x"):
        with pytest.raises(InputError, match="is not in the warehouse"):
            files.delete([f"{ROOT}/nyc/t_1/data/a", outside])
    assert len(store.objects) == 5
    files.delete([f"{ROOT}/nyc/t_1/data/a", f"{ROOT}/gone"])
    assert f"{ROOT}/nyc/t_1/data/a" not in store.objects


def test_a_store_that_refuses_is_told_of(store: MemoryStore) -> None:
    store.trouble = PermissionError(13, "access denied (AccessDenied)", ROOT)
    files = ObjectFileStore(ROOT, store)
    with pytest.raises(EngineError, match=r"s3://bucket/a/lake cannot be listed: access denied") as listing:
        list(files.list(ROOT))
    with pytest.raises(EngineError, match="cannot be deleted: access denied") as deleting:
        files.delete([f"{ROOT}/x"])
    assert listing.value.hint
    assert deleting.value.hint


def test_only_known_stores_are_collected(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, store)
    assert isinstance(open_file_store("file:///lake"), LocalFileStore)
    assert isinstance(open_file_store(ROOT), ObjectFileStore)
    with pytest.raises(ConfigurationError, match="there is no file store for 'hdfs'"):
        open_file_store("hdfs://lake/t")


def test_a_warehouse_is_tried_before_it_is_written_to(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, store)
    for _ in range(2):
        require_writable(f"{ROOT}/", StorageSettings())
    assert list(store.objects) == [f"{ROOT}/{warehouse.MARKER}"]
    monkeypatch.setattr(opening, "open_store", lambda *_: pytest.fail("nothing is to be tried"))
    require_writable("file:///lake", StorageSettings())


def test_a_lake_tries_its_warehouse_until_it_works_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse_first(root: str, _: StorageSettings) -> None:
        asked.append(root)
        if len(asked) == 1:
            raise StorageUnavailableError("S3 is away.")

    monkeypatch.setattr(wiring, "require_writable", refuse_first)
    settings = Settings(catalog=CatalogSettings(warehouse=ROOT))
    made = wiring.Wiring(tmp_path, settings, session=None, narrator=SilentNarrator())
    require = made._require_writable  # noqa: SLF001 - the rest of its rooms would start a catalog
    with pytest.raises(StorageUnavailableError):
        require()
    for _ in range(3):
        require()
    assert asked == [ROOT, ROOT]


def test_a_file_that_may_not_be_read_or_written_is_a_matter_of_settings(store: MemoryStore) -> None:
    denied = PermissionError(13, "access denied (AccessDenied)", ROOT)

    def read() -> bytes:
        raise denied

    with pytest.raises(ConfigurationError, match=r"Metadata file may not be read: access denied") as reads:
        reading("Metadata file", POINTER, read)
    store.trouble = denied
    files = TableFiles(POINTER, NewObjectsIO(store), f"{ROOT}/t/metadata")
    with pytest.raises(ConfigurationError, match=r"nyc\.trips may not be written to s3://.*: access denied") as writes:
        files.write(files.path("x.avro"), b"1")
    assert "catalog.warehouse" in str(reads.value.hint)
    assert "catalog.warehouse" in str(writes.value.hint)


def test_a_misspelt_bucket_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Making(MemoryStore):
        def list(self, prefix: str) -> Iterator[StoredObject]:
            raise SourceError(f"The bucket of '{prefix}' does not exist.")

    making = Making()
    use(monkeypatch, making)
    with pytest.raises(ConfigurationError, match="does not exist"):
        require_writable(ROOT, StorageSettings())
    assert making.objects == {}


def test_a_warehouse_need_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden(MemoryStore):
        def list(self, prefix: str) -> Iterator[StoredObject]:
            raise PermissionError(13, "access denied", prefix)

    hidden = Hidden()
    use(monkeypatch, hidden)
    require_writable(ROOT, StorageSettings())
    assert list(hidden.objects) == [f"{ROOT}/{warehouse.MARKER}"]


@pytest.mark.parametrize(
    "trouble",
    [
        PermissionError(13, "access denied (AccessDenied: no)", ROOT),
        SourceError("The bucket of 's3://bucket/a/lake/.lakegate' does not exist.", hint="Check its name."),
        ConfigurationError("S3 does not accept our credentials.", hint="Give credentials."),
    ],
)
def test_a_warehouse_that_cannot_be_written_to(trouble: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, MemoryStore(trouble=trouble))
    with pytest.raises(ConfigurationError) as caught:
        require_writable(ROOT, StorageSettings())
    reason = trouble.message if isinstance(trouble, LakegateError) else str(trouble.args[1])
    assert caught.value.message == f"The warehouse {ROOT} cannot be used: {reason.rstrip('.')}."
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


def test_a_local_warehouse_loads_no_library_of_a_store() -> None:
    program = (
        "import sys, tempfile\nfrom pathlib import Path\nfrom lakegate.config import Settings\n"
        "from lakegate.narration import SilentNarrator\nfrom lakegate.wiring import Wiring\n"
        "made = Wiring(Path(tempfile.gettempdir()), Settings(), session=None, narrator=SilentNarrator())\n"
        "made.reader, made.editor, made.files, made.stack, made._require_writable()\n"
        "print(sorted({'boto3', 'botocore', 'obstore', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
