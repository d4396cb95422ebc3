"""Source files on a real S3 server, without an engine: finding, describing and reading them."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lakegate.config import S3Settings, StorageSettings
from lakegate.errors import ConfigurationError, InputError, SourceError, StorageUnavailableError
from lakegate.model.batch import Batch
from lakegate.sources import changed_files, discover
from lakegate.sources.discovery import list_files
from lakegate.storage import s3 as client
from support.e2e_support import trips
from support.retries import retry_at_once
from support.s3_proxy import Proxy, Trouble

if TYPE_CHECKING:
    from support.s3_server import Bucket, S3Server

pytestmark = pytest.mark.system

CSV = b"a,b\n1,2\n"


def parquet(rows: int, *, nulls: int = 0) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(trips(rows, nulls=nulls), buffer)
    return buffer.getvalue()


@pytest.fixture
def _credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Credentials for the server where AWS's tools look for them."""
    for name, value in s3_server.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    retry_at_once(monkeypatch)
    client.s3_client.cache_clear()
    yield
    client.s3_client.cache_clear()


@pytest.fixture
def bucket(_credentials: None, s3_server: S3Server) -> Bucket:
    """An empty bucket."""
    return s3_server.new_bucket()


@pytest.fixture(scope="module")
def filled(s3_server: S3Server) -> Bucket:
    """A bucket with objects of all kinds of keys, for tests that only read."""
    made = s3_server.new_bucket()
    names = ("deep/er/c.csv", "deep/notes.txt", "_hidden.csv", "_temporary/0/d.csv", ".x.csv")
    for key in ("a.csv", "day=1/x.csv", *names):
        made.put(key, CSV)
    made.put("folder/", b"")
    return made


def through(proxy: Proxy) -> StorageSettings:
    return StorageSettings(s3=S3Settings(endpoint=proxy.endpoint))


def keys(bucket: Bucket, *paths: str) -> list[str]:
    return [file.uri.removeprefix(f"{bucket.uri}/") for file in list_files([f"{bucket.uri}/{path}" for path in paths])]


def test_a_file_is_told_by_its_listing_as_discovery_tells_it(bucket: Bucket) -> None:
    etag = bucket.put("trips/a.parquet", parquet(10))
    (listed,) = list_files([f"{bucket.uri}/trips/"])
    (source,) = discover([f"{bucket.uri}/trips/a.parquet"]).files
    assert (listed.uri, listed.size_bytes, listed.stamp) == (source.uri, source.size_bytes, source.stamp)
    assert listed.uri == f"{bucket.uri}/trips/a.parquet"
    assert source.rows == 10
    assert source.version == f"etag:{etag}:{source.size_bytes}"
    assert source.stamp == f"{source.size_bytes}-{etag}"
    assert listed.modified_at.utcoffset() is not None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ["a.csv", "day=1/x.csv", "deep/er/c.csv"]),
        ("deep", ["deep/er/c.csv"]),
        ("deep/", ["deep/er/c.csv"]),
        ("de", []),
        ("*.csv", ["a.csv"]),
        ("?.[a-c]sv", ["a.csv"]),
        ("[!b].csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "day=1/x.csv", "deep/er/c.csv"]),
        ("d*", ["day=1/x.csv", "deep/er/c.csv"]),
        ("d*/**", ["day=1/x.csv", "deep/er/c.csv", "deep/notes.txt"]),
        ("deep/*.txt", ["deep/notes.txt"]),
        ("deep/notes.txt", ["deep/notes.txt"]),
        ("_hidden.csv", ["_hidden.csv"]),
        ("_temporary/", ["_temporary/0/d.csv"]),
        ("nothing/here/", []),
    ],
)
@pytest.mark.usefixtures("_credentials")
def test_keys_prefixes_and_patterns(filled: Bucket, path: str, expected: list[str]) -> None:
    assert sorted(keys(filled, path)) == expected


@pytest.mark.parametrize("versioned", [False, True])
def test_what_changes_a_file_and_what_does_not(bucket: Bucket, tmp_path: Path, versioned: bool) -> None:
    if versioned:
        bucket.keep_versions()
    bucket.put("a.csv", CSV)
    bucket.put("b.csv", CSV)
    batch = discover([bucket.uri], copies=tmp_path)
    bucket.put("a.csv", CSV)  # copied over itself
    assert not changed_files(batch)
    assert discover([bucket.uri], copies=tmp_path) == batch
    bucket.put("a.csv", b"a,b\n1,3\n")
    assert [file.uri for file in changed_files(batch)] == [f"{bucket.uri}/a.csv"]
    assert discover([bucket.uri]).files[0].version != batch.files[0].version
    bucket.client.delete_object(Bucket=bucket.name, Key="b.csv")
    assert len(changed_files(batch)) == 2


def test_a_version_is_taken_while_it_is_the_current_one(bucket: Bucket, tmp_path: Path) -> None:
    bucket.keep_versions()
    bucket.put("a.csv", CSV)
    old = _version(bucket, "a.csv")
    (pinned,) = discover([f"{bucket.uri}/a.csv?versionId={old}"], copies=tmp_path).files
    assert pinned == discover([f"{bucket.uri}/a.csv"], copies=tmp_path).files[0]
    (listed,) = discover([bucket.uri], copies=tmp_path).files
    assert (pinned.version_id, listed.version_id, listed.version) == (old, None, pinned.version)
    bucket.put("a.csv", b"a,b\n1,3\n")
    new = _version(bucket, "a.csv")
    with pytest.raises(SourceError, match=f"can't be read in version {old}: the current version is {new}") as caught:
        discover([f"{bucket.uri}/a.csv?versionId={old}"])
    assert "copy the other one" in str(caught.value.hint)
    assert keys(bucket, f"a.csv?versionId={new}") == ["a.csv"]


def test_a_delete_marker_is_no_file(bucket: Bucket) -> None:
    bucket.keep_versions()
    bucket.put("in/a.csv", CSV)
    bucket.put("in/b.csv", CSV)
    gone = _version(bucket, "in/b.csv")
    bucket.client.delete_object(Bucket=bucket.name, Key="in/b.csv")
    assert keys(bucket, "in/") == ["in/a.csv"]
    assert discover([f"{bucket.uri}/in/*.csv"]).uris == (f"{bucket.uri}/in/a.csv",)
    for path in ("in/b.csv", f"in/b.csv?versionId={gone}"):
        with pytest.raises(SourceError, match="an object, nor a folder"):
            discover([f"{bucket.uri}/{path}"])


@pytest.mark.parametrize(("key", "content"), [("a.parquet", parquet(2_000)), ("a.csv", CSV * 400_000)])
@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_file_that_changes_while_it_is_looked_at(bucket: Bucket, key: str, content: bytes, how: str) -> None:
    bucket.put(key, content)
    with Proxy(bucket.endpoint) as proxy:

        def change(method: str, path: str) -> None:
            if method == "GET" and key in path:
                proxy.before = lambda _method, _path: None
                if how == "deleted":
                    bucket.client.delete_object(Bucket=bucket.name, Key=key)
                else:
                    bucket.put(key, content + b"9")

        proxy.before = change
        with pytest.raises(SourceError, match=r"was replaced|was deleted") as caught:
            discover([f"{bucket.uri}/{key}"], storage=through(proxy))
    assert f"'{bucket.uri}/{key}'" in caught.value.message
    assert caught.value.hint == "Run the command again."


@pytest.mark.parametrize("trouble", ["busy", "failing", "cut", "cut-body"])
def test_a_busy_server_and_cut_connections_are_tried_again(bucket: Bucket, trouble: Trouble) -> None:
    bucket.put("t/a.parquet", parquet(500))
    bucket.put("t/b.parquet", parquet(700))
    calm = discover([f"{bucket.uri}/t/"])
    asked = Counter[tuple[str, str]]()

    def two_of_three(number: int) -> Trouble:
        # Of those for one object: of all, who asks for one might meet trouble each time, as another asks in between.
        method, path = proxy.requests[number]
        asked[method, path] += 1
        return trouble if asked[method, path] % 3 else "none"

    with Proxy(bucket.endpoint, two_of_three) as proxy:
        found = discover([f"{bucket.uri}/t/"], storage=through(proxy))
        assert found == calm
        assert not changed_files(found, through(proxy))
        assert len(proxy.requests) > 12


@pytest.mark.parametrize("trouble", ["busy", "cut"])
def test_a_server_that_never_serves_is_a_reason_to_try_later(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, trouble: Trouble
) -> None:
    monkeypatch.setattr(client, "ATTEMPTS", 2)
    with Proxy(bucket.endpoint, lambda _: trouble) as proxy:
        settings = through(proxy)
        with pytest.raises(StorageUnavailableError, match="couldn't serve") as caught:
            discover([f"{bucket.uri}/t/"], storage=settings)
        with pytest.raises(StorageUnavailableError):
            list(list_files([f"{bucket.uri}/t/*.csv"], storage=settings))
        assert caught.value.exit_code == 3
        batch = _batch_of(bucket)
        with pytest.raises(StorageUnavailableError):
            changed_files(batch, settings)


def test_credentials_that_are_wrong_or_missing(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("a.csv", CSV)
    secret = "wrong-secret-of-this-test"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    client.s3_client.cache_clear()
    with pytest.raises(InputError) as caught:
        discover([f"{bucket.uri}/a.csv"])
    assert secret not in f"{caught.value.to_dict()}"
    assert "AWS_PROFILE" in str(caught.value.hint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    client.s3_client.cache_clear()
    with pytest.raises(ConfigurationError, match="Unable to locate credentials"):
        discover([f"{bucket.uri}/*.csv"])


def _version(bucket: Bucket, key: str) -> str:
    return bucket.client.head_object(Bucket=bucket.name, Key=key)["VersionId"]


def _batch_of(bucket: Bucket) -> Batch:
    bucket.put("t/a.csv", CSV)
    return discover([f"{bucket.uri}/t/a.csv"])
