"""What every object store promises, each against a server of its kind."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lakegate.config import AdlsSettings, GcsSettings, S3Settings, StorageSettings
from lakegate.errors import NotFoundError, SourceError, StorageUnavailableError
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.sources import changed_files, discover
from lakegate.sources.discovery import list_files
from lakegate.storage import open_store
from lakegate.storage.objects import ObjectStore, ReplacedError, StoredObject
from lakegate.table import Table
from support.adls_server import ACCOUNT, KEY, AdlsServer, UnavailableError
from support.e2e_support import trips
from support.gcs_server import GcsServer
from support.iceberg_tables import pointer_to
from support.retries import retry_at_once
from support.s3_proxy import Proxy, Trouble
from support.uploaded_tables import UploadedTables

if TYPE_CHECKING:
    from support.s3_server import S3Server

pytestmark = pytest.mark.system

CSV = b"a,b\n1,2\n"
ODD_NAMES = ("a b.csv", "p+q.csv", "100%.csv", "a%20b.csv", "é日.csv", "q?.csv", "x[1].csv", "10:00.csv", "#1&=;.csv")


@dataclass
class Place:
    """A bucket of some service: how to reach it, and how others write to it."""

    root: str
    endpoint: str
    settings: Callable[[str], StorageSettings]
    put: Callable[[str, bytes], object]
    remove: Callable[[str], object]
    store: ObjectStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.through(self.endpoint)

    def through(self, endpoint: str) -> ObjectStore:
        return open_store(self.root, self.settings(endpoint))

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def keys(self, prefix: str) -> list[str]:
        return [found.uri.removeprefix(f"{self.root}/") for found in self.store.list(self.uri(prefix))]


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[GcsServer]:
    server = GcsServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def adls_server() -> Iterator[AdlsServer]:
    server = AdlsServer()
    try:
        server.start()
        yield server
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        server.remove()


@pytest.fixture(params=["s3", "gcs", "adls"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    make: dict[str, Callable[[pytest.FixtureRequest, pytest.MonkeyPatch], Place]] = {
        "s3": _on_s3,
        "gcs": _on_gcs,
        "adls": _on_adls,
    }
    retry_at_once(monkeypatch)
    return make[request.param](request, monkeypatch)


def _on_s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in {**server.credentials, "AWS_CONFIG_FILE": "/nonexistent"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    bucket = server.new_bucket()
    return Place(
        bucket.uri,
        server.endpoint,
        lambda endpoint: StorageSettings(s3=S3Settings(endpoint=endpoint, path_style=True)),
        bucket.put,
        lambda key: bucket.client.delete_object(Bucket=bucket.name, Key=key),
    )


def _on_gcs(request: pytest.FixtureRequest, _: pytest.MonkeyPatch) -> Place:
    server: GcsServer = request.getfixturevalue("gcs_server")
    bucket = server.new_bucket()
    return Place(
        f"gs://{bucket}",
        server.endpoint,
        lambda endpoint: StorageSettings(gcs=GcsSettings(endpoint=endpoint)),
        lambda key, content: server.put(bucket, key, content),
        lambda key: server.delete(bucket, key),
    )


def _on_adls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    server: AdlsServer = request.getfixturevalue("adls_server")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    container = server.new_container()
    return Place(
        f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net",
        server.endpoint,
        lambda endpoint: StorageSettings(adls=AdlsSettings(endpoint=endpoint)),
        lambda key, content: server.put(container, key, content),
        lambda key: server.delete(container, key),
    )


def parquet(rows: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(trips(rows), buffer)
    return buffer.getvalue()


def test_a_tables_rows_are_read_without_spark(place: Place) -> None:
    tables = UploadedTables(
        f"{place.root}/lake", lambda uri, content: place.put(uri.removeprefix(f"{place.root}/"), content)
    )
    tables.create_namespace("nyc")
    made = tables.create_table("nyc.trips", trips(0).schema)
    for rows in (50_000, 3):
        made.append(trips(rows))
    table = Table(pointer_to(made), IcebergTableReader(TableFiles(place.settings(place.endpoint))))
    tables.close()
    assert table.to_arrow(columns=["id"]).num_rows == 50_003
    assert table.to_arrow(where="id = 2").num_rows == 2
    gone = next(table.files()).path
    place.remove(gone.removeprefix(f"{place.root}/"))
    with pytest.raises(NotFoundError, match="doesn't exist"):
        table.to_arrow()


def test_an_object_is_told_alike_by_listing_and_by_look(place: Place) -> None:
    place.put("in/a.csv", CSV)
    (listed,) = place.store.list(place.uri("in/"))
    looked = place.store.stat(place.uri("in/a.csv"))
    assert (listed.uri, listed.size_bytes, listed.etag) == (looked.uri, looked.size_bytes, looked.etag)
    assert (looked.uri, looked.size_bytes) == (place.uri("in/a.csv"), len(CSV))
    assert abs(looked.modified_at - datetime.now(UTC)) < timedelta(hours=1)
    assert abs(listed.modified_at - looked.modified_at) < timedelta(seconds=2)


def test_odd_keys_are_taken_literally(place: Place) -> None:
    for name in ODD_NAMES:
        uri = place.uri(f"odd/{name}")
        place.store.create(uri, CSV)
        assert [found.uri for found in place.store.list(place.uri("odd/"))] == [uri]
        assert place.store.stat(uri).size_bytes == len(CSV)
        assert discover([uri], storage=place.settings(place.endpoint)).uris == (uri,)
        place.store.delete([uri])
        assert place.keys("odd/") == []


def test_what_is_not_there(place: Place) -> None:
    for key in ("no.csv", "a/b/"):
        with pytest.raises(FileNotFoundError):
            place.store.stat(place.uri(key))
    with pytest.raises(FileNotFoundError):
        place.store.open(place.uri("no.csv"))
    nowhere = place.root.replace("landing-", "nowhere-")
    with pytest.raises(SourceError, match="doesn't exist"):
        list(place.store.list(f"{nowhere}/in/"))


def test_a_stream_reads_and_seeks(place: Place) -> None:
    content = bytes(range(256)) * 4000
    place.put("a.bin", content)
    place.put("zero.bin", b"")
    with place.store.open(place.uri("a.bin")) as stream:
        assert stream.read(3) == content[:3]
        stream.seek(-5, io.SEEK_END)
        assert stream.read() == content[-5:]
        assert stream.read(1) == b""
        stream.seek(300_001)
        assert stream.read(70_000) == content[300_001:370_001]
        stream.seek(0)
        assert stream.read() == content
    with place.store.open(place.uri("zero.bin")) as stream:
        assert stream.read() == b""


def test_a_stream_holds_on_to_one_content(place: Place) -> None:
    place.put("a.bin", b"1" * 200_000)
    old = place.store.stat(place.uri("a.bin"))
    with place.store.open(old.uri, etag=old.etag, size_bytes=old.size_bytes) as stream:
        assert stream.read(10) == b"1" * 10
        place.put("a.bin", b"2" * 200_000)
        with pytest.raises(ReplacedError):
            stream.seek(150_000), stream.read()
    assert place.store.stat(old.uri).etag != old.etag
    with place.store.open(old.uri) as stream:
        assert stream.read(10) == b"2" * 10
        place.remove("a.bin")
        with pytest.raises(FileNotFoundError):
            stream.seek(150_000), stream.read()


def test_an_object_is_created_once(place: Place) -> None:
    place.store.create(place.uri("a.json"), b"first")
    with pytest.raises(FileExistsError):
        place.store.create(place.uri("a.json"), b"second")
    with place.store.open(place.uri("a.json")) as stream:
        assert stream.read() == b"first"


def test_a_file_is_uploaded_in_as_many_requests_as_it_needs(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakegate.storage.s3._IN_PARTS_FROM", 8 << 20)
    monkeypatch.setattr("lakegate.storage.s3._PART_BYTES", 5 << 20)
    path = tmp_path / "rows.csv"
    for content in (b"", CSV, b"0123456789" * 1_300_000, b"shorter"):
        path.write_bytes(content)
        place.store.upload(place.uri("a b.csv"), path)
        with place.store.open(place.uri("a b.csv")) as stream:
            assert stream.read() == content


@pytest.mark.parametrize("place", ["s3", "adls"], indirect=True)  # the stand-in of GCS looks and then writes
def test_of_many_that_create_the_same_one_wins(place: Place) -> None:
    def create(number: int) -> bool:
        try:
            place.store.create(place.uri("lock"), str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(24)))
    assert won.count(True) == 1
    with place.store.open(place.uri("lock")) as stream:
        assert stream.read() == str(won.index(True)).encode()


def test_many_are_deleted_at_once_and_gone_ones_are_no_error(place: Place) -> None:
    for number in range(20):
        place.put(f"t/{number} +%.csv", CSV)
    place.put("kept.csv", CSV)
    place.store.delete([place.uri(f"t/{number} +%.csv") for number in range(30)])
    place.store.delete([])
    assert place.keys("") == ["kept.csv"]


def test_parquet_and_csv_are_found_read_and_watched(place: Place) -> None:
    storage = place.settings(place.endpoint)
    place.put("trips/day=1/a.parquet", parquet(40))
    place.put("trips/b.parquet", parquet(2))
    place.put("trips/_SUCCESS", b"")
    batch = discover([place.uri("trips/**/*.parquet")], storage=storage)
    assert (batch.rows, len(batch.files)) == (42, 2)
    listed = {file.uri: file.stamp for file in list_files([place.uri("trips/")], storage=storage)}
    assert listed == {file.uri: file.stamp for file in batch.files}
    assert not changed_files(batch, storage)
    place.put("trips/b.parquet", parquet(3))
    place.remove("trips/day=1/a.parquet")
    assert len(changed_files(batch, storage)) == 2


@contextmanager
def troubled(place: Place, trouble: Trouble, methods: str) -> Iterator[Proxy]:
    """A proxy that does ``trouble`` to the first request that is one of ``methods``."""
    done: list[int] = []

    def judge(number: int) -> Trouble:
        method, path = proxy.requests[number]
        # Google's library asks for the bucket besides, for its own records
        if done or method not in methods or re.fullmatch(r"/storage/v1/b/[^/]+", path.partition("?")[0]):
            return "none"
        done.append(number)
        return trouble

    proxy = Proxy(place.endpoint, judge)
    with proxy:
        yield proxy
    assert done


@pytest.mark.parametrize("trouble", ["busy", "cut", "cut-body"])
def test_troubles_that_pass_are_not_noticed(place: Place, trouble: Trouble) -> None:
    content = b"x" * 100_000
    place.put("a.bin", content)
    uri = place.uri("a.bin")

    def listed(store: ObjectStore) -> list[StoredObject]:
        return list(store.list(place.uri("")))

    def read(store: ObjectStore) -> bytes:
        found = place.store.stat(uri)
        with store.open(uri, etag=found.etag, size_bytes=found.size_bytes) as stream:
            return stream.read()

    for look, expected in ((listed, listed(place.store)), (read, content)):
        with troubled(place, trouble, "GET") as proxy:
            assert look(place.through(proxy.endpoint)) == expected


def test_a_creation_whose_answer_is_lost_is_known_as_our_own(place: Place) -> None:
    uri = place.uri("a.json")
    with troubled(place, "lost", "PUT POST") as proxy:
        place.through(proxy.endpoint).create(uri, b"mine")
        writes = [method for method, _ in proxy.requests if method in {"PUT", "POST"}]
        assert len(writes) == 2, proxy.requests
    with place.store.open(uri) as stream:
        assert stream.read() == b"mine"


@pytest.mark.parametrize("place", ["s3"], indirect=True)  # the others' libraries wait for a minute
def test_troubles_that_stay_are_a_reason_to_try_later(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.storage.s3.ATTEMPTS", 1)
    monkeypatch.setattr("lakegate.storage.objects.ATTEMPTS", 2)
    with Proxy(place.endpoint, lambda _: "cut") as proxy:
        store = place.through(proxy.endpoint)
        for ask in (store.stat, lambda uri: store.create(uri, b""), lambda uri: store.delete([uri])):
            with pytest.raises(StorageUnavailableError, match="couldn't serve"):
                ask(place.uri("a.csv"))
