"""Ingest from a real S3 server by the real engine: published, rejected, refused, and never half of it."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lakegate.config import S3Settings, Settings, load_settings
from lakegate.errors import EngineError, LocalStackError, SourceError
from lakegate.lake import Lake, connect
from lakegate.local.stack import LocalStack
from lakegate.model.run import Run
from lakegate.ports import Step
from lakegate.progress import SilentNarrator
from lakegate.storage import s3 as client
from support.e2e_support import trips, unchanged
from support.lakes import components_of, session_of
from support.s3_proxy import Proxy

if TYPE_CHECKING:
    from support.s3_server import Bucket, S3Server

pytestmark = pytest.mark.jvm

ODD_NAMES = ("a b+c%20é", "100%", "日本", "x[1]", "q?", "st*r", "{a}", "10:00", "#1&=;", "back\\slash")


def parquet(rows: int, *, nulls: int = 0, start: int = 0) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(trips(rows, nulls=nulls, start=start), buffer)
    return buffer.getvalue()


def published_rows(run: Run) -> int:
    assert run.status == "published"
    return sum(staged.rows for staged in run.staged)


class Meddler(SilentNarrator):
    """Does something at the moment when the engine begins to write."""

    def __init__(self) -> None:
        self.act: Callable[[], object] = lambda: None

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        if text.startswith("Writing"):
            self.act()
        with super().step(text) as step:
            yield step


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Settings]]:
    """A project of its own: its Spark is started anew for S3, which other tests' must not be."""
    home = tmp_path_factory.mktemp("s3-home")
    made = load_settings(home, env={"LAKEGATE_LOCAL_SPARK_MEMORY": "1500m"})
    yield home, made
    LocalStack(home, made.local, SilentNarrator()).down()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in s3_server.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    client.s3_client.cache_clear()
    yield s3_server.new_bucket()
    client.s3_client.cache_clear()


@pytest.fixture
def meddler() -> Meddler:
    return Meddler()


@pytest.fixture
def lake(settings: tuple[Path, Settings], bucket: Bucket, meddler: Meddler) -> Iterator[Lake]:
    with connect(settings[0], settings=settings[1], narrator=meddler) as opened:
        yield opened


def test_it_is_published_once_and_secrets_stay_where_they_are(
    lake: Lake, bucket: Bucket, s3_server: S3Server, namespace: str
) -> None:
    table = f"{namespace}.trips"
    bucket.put("landing/a.parquet", parquet(1_000))
    bucket.put("landing/deep/b.parquet", parquet(500, start=1_000))
    bucket.put("landing/_SUCCESS", b"")
    run = lake.ingest(table, f"{bucket.uri}/landing/", checks=["not_null(passengers)"])
    assert published_rows(run) == 1_500
    assert lake.ingest(table, f"{bucket.uri}/landing/*.parquet").status == "skipped"
    bucket.put("landing/c.parquet", parquet(7, start=1_500))
    again = lake.ingest(table, f"{bucket.uri}/landing")
    assert (published_rows(again), len(again.skipped_files)) == (7, 2)
    visible = _spark_settings(lake)
    assert "fs.s3a.aws.credentials.provider" in visible
    for secret in (s3_server.access_key, s3_server.secret_key):
        assert secret not in visible
        # By another process: to open and close the journal here would drop the locks of SQLite.
        assert subprocess.run(["/usr/bin/grep", "-rlF", secret, lake.home / ".lakegate"], check=False).returncode == 1


def _spark_settings(lake: Lake) -> str:
    session = session_of(components_of(lake))
    return "".join(str(session.sql(text).collect()) for text in ("SET", "SET -v"))


def test_nulls_are_rejected(lake: Lake, bucket: Bucket, namespace: str) -> None:
    bucket.put("in/a.parquet", parquet(100, nulls=3))
    with_nulls = lake.ingest(
        f"{namespace}.trips", f"{bucket.uri}/in/*.parquet", checks=["not_null(passengers)"], on_failure="drop"
    )
    assert with_nulls.status == "rejected"
    assert with_nulls.failures[0].failing_rows == 3


def test_files_of_odd_keys_all_arrive(lake: Lake, bucket: Bucket, namespace: str) -> None:
    for number, name in enumerate(ODD_NAMES):
        bucket.put(f"odd/{name}.csv", f"id,name\n{number},x\n".encode())
    bucket.put("odd/x1.csv", b"id,name\n100,near\n")  # what x[1].csv would mean as a pattern
    names = [f"{bucket.uri}/odd/{name}.csv" for name in ODD_NAMES]
    run = lake.ingest(f"{namespace}.odd", names)
    assert published_rows(run) == len(ODD_NAMES)
    found = lake.query(f"SELECT id FROM {namespace}.odd ORDER BY id").to_arrow().column("id").to_pylist()
    assert found == list(range(len(ODD_NAMES)))


@pytest.mark.parametrize("rows", [100, 120, None])
def test_a_file_that_is_replaced_or_deleted_before_it_is_read(
    lake: Lake, bucket: Bucket, meddler: Meddler, namespace: str, rows: int | None
) -> None:
    bucket.put("in/a.parquet", parquet(100))
    bucket.put("in/b.parquet", parquet(100, start=100))

    def meddle() -> None:
        if rows is None:
            bucket.client.delete_object(Bucket=bucket.name, Key="in/b.parquet")
        else:
            bucket.put("in/b.parquet", parquet(rows, start=500))

    meddler.act = meddle
    with unchanged(lake), pytest.raises((EngineError, SourceError)) as caught:
        lake.ingest(f"{namespace}.trips", f"{bucket.uri}/in/")
    assert caught.value.hint
    if rows == 100:
        assert f"{bucket.uri}/in/b.parquet was changed or removed" in caught.value.message


def test_a_cut_off_file_stops_the_batch_before_anything_is_written(lake: Lake, bucket: Bucket, namespace: str) -> None:
    bucket.put("in/a.parquet", parquet(100))
    bucket.put("in/b.parquet", parquet(100)[:-20])
    with unchanged(lake), pytest.raises(SourceError, match=r"/in/b\.parquet' is cut off"):
        lake.ingest(f"{namespace}.trips", f"{bucket.uri}/in/")


def test_an_error_of_the_engine_names_the_file(lake: Lake, bucket: Bucket, meddler: Meddler, namespace: str) -> None:
    bucket.put("in/a.csv", b"id,name\n1,x\n")
    meddler.act = lambda: bucket.put("in/a.csv", b"other,header\n1,x\n")
    with unchanged(lake), pytest.raises(SourceError, match=f"{bucket.uri}/in/a.csv"):
        lake.ingest(f"{namespace}.names", f"{bucket.uri}/in/a.csv")


# The last one: Spark is started anew for it, and would be once more for one that came behind.
def test_a_busy_server_is_tried_again_by_client_and_engine(
    settings: tuple[Path, Settings], bucket: Bucket, namespace: str
) -> None:
    bucket.put("in/a.parquet", parquet(2_000))
    bucket.put("in/b.csv", b"id,name\n" + b"1,x\n" * 100_000)
    with Proxy(bucket.endpoint, lambda number: ("none", "busy", "none", "cut", "cut-body")[number % 5]) as proxy:
        # another address: Spark is started anew for it, unless somebody uses it
        busy = settings[1].model_copy(update={"s3": S3Settings(endpoint=proxy.endpoint)})
        with connect(settings[0], settings=settings[1]) as other:
            other.query("SELECT 1").to_arrow()
            with connect(settings[0], settings=busy) as lake, pytest.raises(LocalStackError, match="is using it"):
                lake.ingest(f"{namespace}.trips", f"{bucket.uri}/in/a.parquet")
        with connect(settings[0], settings=busy) as lake:
            assert published_rows(lake.ingest(f"{namespace}.trips", f"{bucket.uri}/in/a.parquet")) == 2_000
            assert published_rows(lake.ingest(f"{namespace}.names", f"{bucket.uri}/in/b.csv")) == 100_000
        assert len(proxy.requests) > 20
