"""Tables and source files on a real S3 server, written and read by the real engine, and S3 in trouble."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from lakegate import components
from lakegate.config import CatalogSettings, S3Settings, Settings, load_settings
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    RetryableError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.iceberg.files import MARKER
from lakegate.iceberg.spark_options import spark_file_io
from lakegate.lake import Lake, connect
from lakegate.model.run import Run
from lakegate.ports import Step
from lakegate.progress import SilentNarrator
from lakegate.storage import s3 as client
from support.e2e_support import standing, trips, unchanged, write_trips
from support.lakes import components_of, session_of
from support.s3_proxy import Proxy, Trouble

if TYPE_CHECKING:
    from support.s3_server import Bucket, S3Server
    from support.s3_warehouse import S3Warehouse

pytestmark = pytest.mark.jvm

CHECKS = ["not_null(passengers)"]
ODD_NAMES = ("a b+c%20é", "100%", "日本", "x[1]", "q?", "st*r", "{a}", "10:00", "#1&=;", "back\\slash")


@dataclass
class Way:
    """What stands between all programs and the store: nothing wrong, unless a test says so of a request."""

    decide: Callable[[int, str, str], Trouble] = field(default=lambda _number, _method, _path: "none")

    @contextmanager
    def troubled(self, decide: Callable[[int, str, str], Trouble]) -> Iterator[None]:
        """Do to each request of the body what ``decide`` says of its number (from 0), method and path."""
        before, self.decide = self.decide, decide
        try:
            yield
        finally:
            self.decide = before


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


@dataclass(frozen=True)
class World:
    """A lake with its tables on S3.

    Attributes:
        lake: The lake.
        warehouse: Where its tables are.
        landing: A bucket of this test's own, for source files.
        way: Between it and the store.
        meddler: Told of the lake's progress.
        table: A table of this test's own.
        folder: Room for source files on this machine.
    """

    lake: Lake
    warehouse: S3Warehouse
    landing: Bucket
    way: Way
    meddler: Meddler
    table: str
    folder: Path

    def file(self, name: str, rows: int, *, start: int = 0, nulls: int = 0) -> Path:
        return write_trips(self.folder / f"{name}.parquet", rows, start=start, nulls=nulls)

    def add(self, name: str, rows: int, **options: Any) -> Run:
        run = self.lake.ingest(
            self.table, self.file(name, rows, **options), checks=CHECKS, on_failure="drop", on_rejected="return"
        )
        assert run.status == ("rejected" if options.get("nulls") else "published")
        return run

    def ids(self) -> list[int]:
        found: list[Any] = self.lake.table(self.table).to_arrow(columns=["id"])["id"].to_pylist()
        return sorted(found)

    def ids_by_spark(self, at: str | None = None) -> list[int]:
        found: list[Any] = self.lake.query(f"SELECT id FROM {self.table}", at=at).to_arrow()["id"].to_pylist()
        return sorted(found)

    def files(self) -> set[str]:
        return {file.path for file in self.lake.table(self.table).files()}

    def keys(self, part: str = "") -> set[str]:
        """The keys of this test's tables whose name holds ``part``."""
        namespace = self.table.partition(".")[0]
        return {key for key in self.warehouse.keys("some where/lake/") if f"/{namespace}/" in key and part in key}

    def head(self) -> str:
        return standing(self.lake)["main"]


@pytest.fixture(scope="module")
def way() -> Way:
    return Way()


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def warehouse(s3_server: S3Server, patch: pytest.MonkeyPatch) -> S3Warehouse:
    from support.s3_warehouse import new_warehouse

    return new_warehouse(s3_server, patch)


@pytest.fixture(scope="module")
def settings(
    tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server, warehouse: S3Warehouse, way: Way
) -> Iterator[tuple[Path, Settings]]:
    """A project of its own, whose Spark is started for S3."""
    home = tmp_path_factory.mktemp("s3-warehouse")
    with Proxy(s3_server.endpoint, lambda number: way.decide(number, *proxy.requests[number])) as proxy:
        made = load_settings(home, env={"LAKEGATE_LOCAL_SPARK_MEMORY": "1500m"}).model_copy(
            update={
                "s3": S3Settings(endpoint=proxy.endpoint, path_style=True),
                "catalog": CatalogSettings(warehouse=warehouse.uri),
            }
        )
        stack = components.local_stack(home, made, SilentNarrator())
        yield home, made
        stack.down()


@pytest.fixture
def world(
    settings: tuple[Path, Settings],
    warehouse: S3Warehouse,
    s3_server: S3Server,
    way: Way,
    namespace: str,
    tmp_path: Path,
) -> Iterator[World]:
    meddler = Meddler()
    with connect(settings[0], settings=settings[1], narrator=meddler) as lake:
        yield World(lake, warehouse, s3_server.new_bucket(), way, meddler, f"{namespace}.trips", tmp_path)


def parquet(rows: int, *, nulls: int = 0, start: int = 0) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(trips(rows, nulls=nulls, start=start), buffer)
    return buffer.getvalue()


def published_rows(run: Run) -> int:
    assert run.status == "published"
    return sum(staged.rows for staged in run.staged)


def test_files_from_here_and_from_s3_are_published_once_and_no_secret_shows(world: World, s3_server: S3Server) -> None:
    first = world.add("a", 10)
    landing = world.landing
    landed = f"{landing.uri}/in/b.parquet"
    landing.put("in/b.parquet", parquet(3, start=10))
    landing.put("in/deep/c.parquet", parquet(2, start=13))
    landing.put("in/_SUCCESS", b"")
    assert published_rows(world.lake.ingest(world.table, f"{landing.uri}/in/", checks=CHECKS)) == 5
    assert world.lake.ingest(world.table, f"{landing.uri}/in/*.parquet").status == "skipped"
    landing.put("in/d.parquet", parquet(7, start=15))
    again = world.lake.ingest(world.table, f"{landing.uri}/in")
    assert (published_rows(again), len(again.skipped_files)) == (7, 2)
    main = world.head()
    assert world.add("c", 4, start=90, nulls=1).failures[0].failing_rows == 1
    assert world.head() == main
    assert world.ids_by_spark() == list(range(22))
    assert world.ids_by_spark(at=first.publication.commit if first.publication else None) == list(range(10))
    assert all(path.startswith(f"{world.warehouse.uri}/") for path in world.files())
    assert world.lake.table(world.table).rows == 22

    # An engine elsewhere reads what is here through the store.
    made: Any = components_of(world.lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(made), "shares_files", False)
        patch.setattr(made.engine, "shares_files", False)
        (world.folder / "d.jsonl").write_text('{"id": 1, "at": "2024-01-01"}\n', encoding="utf-8")
        (world.folder / "e.csv.gz").write_bytes(gzip.compress(b"id,at\n2,2024-01-02\n"))
        other = f"{world.table}_elsewhere"
        for given in (world.folder / "d.jsonl", world.folder / "e.csv.gz", [{"id": 3, "at": dt.date(2024, 1, 3)}]):
            assert world.lake.ingest(other, given).status == "published"
    assert world.lake.table(other).rows == 3
    assert not {key for key in world.warehouse.keys("") if ".lakegate-sources" in key}

    world.lake.maintenance.rebuild_journal()
    (world.lake.home / ".lakegate" / "journal.db").rename(world.folder / "lost.db")
    with connect(world.lake.home, settings=world.lake.settings) as after:
        assert after.maintenance.rebuild_journal().files >= 2
        assert after.ingest(world.table, [world.folder / "a.parquet", landed]).status == "skipped"

    visible = _spark_settings(world.lake)
    assert "s3.endpoint" in visible
    assert "fs.s3a.aws.credentials.provider" in visible
    for secret in (s3_server.access_key, s3_server.secret_key):
        assert secret not in visible
        # By another process: to open and close the journal here would drop the locks of SQLite.
        assert (
            subprocess.run(["/usr/bin/grep", "-rlF", secret, world.lake.home / ".lakegate"], check=False).returncode
            == 1
        )


def _spark_settings(lake: Lake) -> str:
    session = session_of(components_of(lake))
    return "".join(str(session.sql(text).collect()) for text in ("SET", "SET -v"))


def test_two_runs_into_one_table_are_put_on_top_of_each_other_and_one_is_undone(world: World) -> None:
    world.add("base", 3)
    for number, name in enumerate(("one", "two"), 1):
        path = world.file(name, 10, start=100 * number)
        world.lake.write(world.table, path, run_id=f"{world.table}-{name}", checks=CHECKS)
    data = world.keys("/data/")
    for name in ("one", "two"):
        assert world.lake.publish_run(f"{world.table}-{name}").status == "published"
    assert world.keys("/data/") == data  # replayed, not written again
    assert world.ids_by_spark() == [*range(3), *range(100, 110), *range(200, 210)]
    world.lake.revert(f"{world.table}-one")
    assert world.ids_by_spark() == [*range(3), *range(200, 210)]
    with world.lake.transaction() as tx:
        tx.append(world.table, [{"id": 7, "passengers": 1, "pickup": None, "note": None}])
    assert world.ids_by_spark() == [*range(3), 7, *range(200, 210)]


def test_what_no_reference_reaches_is_collected_and_nothing_else(world: World) -> None:
    world.add("a", 10)
    beside = {"some where/lake2/x_20260101T000000-00000000/data/f", "landing/f", "some where/lake/notes.txt"}
    for key in beside:
        world.warehouse.bucket.put(key, b"1")
    needed = world.keys()
    world.add("b", 5, start=10, nulls=1)
    garbage = world.keys() - needed
    assert len(garbage) == 4  # data file, manifest, manifest list, metadata file
    report = world.lake.maintenance.gc(grace="0s")
    assert not report.problems
    assert world.keys() == needed
    assert beside | {f"some where/lake/{MARKER}"} <= world.warehouse.keys()
    assert world.ids() == list(range(10))


def test_files_of_odd_keys_all_arrive(world: World) -> None:
    for number, name in enumerate(ODD_NAMES):
        world.landing.put(f"odd/{name}.csv", f"id,name\n{number},x\n".encode())
    world.landing.put("odd/x1.csv", b"id,name\n100,near\n")  # what x[1].csv would mean as a pattern
    names = [f"{world.landing.uri}/odd/{name}.csv" for name in ODD_NAMES]
    assert published_rows(world.lake.ingest(world.table, names)) == len(ODD_NAMES)
    assert world.ids() == list(range(len(ODD_NAMES)))


@pytest.mark.parametrize("rows", [100, None])
def test_a_file_that_is_replaced_or_deleted_before_it_is_read(world: World, rows: int | None) -> None:
    landing = world.landing
    landing.put("in/a.parquet", parquet(100))
    landing.put("in/b.parquet", parquet(100, start=100))

    def meddle() -> None:
        if rows is None:
            landing.client.delete_object(Bucket=landing.name, Key="in/b.parquet")
        else:
            landing.put("in/b.parquet", parquet(rows, start=500))

    world.meddler.act = meddle
    with unchanged(world.lake), pytest.raises((EngineError, SourceError)) as caught:
        world.lake.ingest(world.table, f"{landing.uri}/in/")
    assert caught.value.hint
    if rows == 100:
        assert f"{landing.uri}/in/b.parquet was changed or removed" in caught.value.message


def test_a_busy_store_and_cut_connections_are_tried_again_by_client_and_engine(world: World) -> None:
    asked, others = Counter[str](), Counter[tuple[str, str]]()
    # Not at intervals: what a task of Spark asks for when it's tried again might fall on the same trouble each time.
    of_sources: Mapping[int, Trouble] = {1: "busy", 3: "cut", 5: "cut-body", 8: "cut-body"}

    def now_and_then(number: int, method: str, path: str) -> Trouble:
        source = path.partition("?")[0]
        if method == "GET" and "/in/" in source:
            asked[source] += 1
            return of_sources.get(asked[source], "none")
        # By the requests for each object: by all, it would be chance who meets what. No body of a table's file is cut:
        # Iceberg gives up on a manifest that ends too early.
        others[method, source] += 1
        troubles: tuple[Trouble, ...] = ("none", "busy", "none", "none", "cut", "none")
        return troubles[(crc32(source.encode()) + others[method, source]) % 6]

    world.add("a", 1_000)
    world.landing.put("in/c.parquet", parquet(2_000, start=2_000))
    world.landing.put("in/d.csv", b"id,name\n" + b"1,x\n" * 100_000)
    with world.way.troubled(now_and_then):
        world.add("b", 1_000, start=1_000)
        assert published_rows(world.lake.ingest(world.table, f"{world.landing.uri}/in/c.parquet")) == 2_000
        names = world.lake.ingest(f"{world.table}_names", f"{world.landing.uri}/in/d.csv")
    assert world.ids() == list(range(4_000))
    assert published_rows(names) == 100_000
    assert len(asked) == 2
    assert min(asked.values()) > 5, asked


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody tries as often as usual; what they do when they give up is the same."""
    hasty = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "10", "s3.retry.max-wait-ms": "50"}
    name = "lakegate.iceberg.spark_options.spark_file_io"
    monkeypatch.setattr(name, lambda *given: {**spark_file_io(*given), **hasty})
    monkeypatch.setattr(client, "ATTEMPTS", 1)
    client.s3_client.cache_clear()
    yield
    client.s3_client.cache_clear()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("part", "trouble"), [("/metadata/", "cut")])
def test_a_store_that_stays_away_leaves_nothing_on_main_and_no_branch(
    world: World, part: str, trouble: Trouble
) -> None:
    world.add("a", 10)
    with (
        unchanged(world.lake),
        world.way.troubled(lambda _number, method, path: trouble if method == "PUT" and part in path else "none"),
        pytest.raises(StorageUnavailableError) as caught,
    ):
        world.add("b", 10, start=10)
    assert re.search(r"Status Code: 503|failed to respond", f"{caught.value.message} {caught.value.detail}")
    assert caught.value.hint
    failed = world.lake.runs(limit=1)[0]
    assert failed.status == "failed"
    assert world.ids() == list(range(10))
    world.add("b", 10, start=10)
    assert world.ids() == list(range(20))


@pytest.mark.usefixtures("impatient")
def test_a_publish_that_cannot_write_waits_for_the_store(world: World) -> None:
    world.add("base", 3)
    for name, start in (("one", 100), ("two", 200)):
        world.lake.write(world.table, world.file(name, 10, start=start), run_id=f"{world.table}-{name}")
        world.lake.audit_run(f"{world.table}-{name}")
    world.lake.publish_run(f"{world.table}-one")
    with (
        unchanged(world.lake),
        world.way.troubled(lambda _number, method, _path: "busy" if method == "PUT" else "none"),
        pytest.raises(StorageUnavailableError),
    ):
        world.lake.publish_run(f"{world.table}-two")
    assert world.lake.publish_run(f"{world.table}-two").status == "published"
    assert world.ids() == [*range(3), *range(100, 110), *range(200, 210)]


def test_a_warehouse_that_cannot_be_written_to_is_named_before_anything_is(world: World) -> None:
    catalog = CatalogSettings(warehouse="s3://no-such-bucket/lake")
    settings = world.lake.settings.model_copy(update={"catalog": catalog})
    with (
        connect(world.lake.home, settings=settings) as lake,
        unchanged(lake),
        pytest.raises(ConfigurationError, match="warehouse s3://no-such-bucket/lake") as caught,
    ):
        lake.ingest(world.table, world.file("a", 10))
    assert "catalog.warehouse" in str(caught.value.hint)
    with (
        world.way.troubled(lambda _number, method, _path: "denied" if method == "PUT" else "none"),
        unchanged(world.lake),
        pytest.raises(ConfigurationError, match="can't be used: access denied") as denied,
    ):
        world.lake.ingest(world.table, world.file("a", 10))
    assert not isinstance(denied.value, RetryableError)
    assert world.keys() == set()
