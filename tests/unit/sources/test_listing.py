"""What a folder gives: its files of known formats, by name or by first bytes, and no table of another format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import SourceError
from lakegate.sources import discover, local, remote, to_uri
from lakegate.sources.discovery import list_files
from lakegate.sources.listing import Wanted, remote_tables
from support.memory_store import MemoryStore

ICEBERG = "metadata/00000-0b1f2c3d-1111-4222-8333-444455556666.metadata.json"


def parquet(path: Path, rows: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(rows))}), path)
    return path


@pytest.mark.parametrize(
    ("marker", "words"), [("_delta_log/0.json", "Delta"), (".hoodie/hoodie.properties", "Hudi"), (ICEBERG, "Iceberg")]
)
@pytest.mark.parametrize("given", ["", "orders", "orders/data", "orders/data/*.parquet", "orders/data/a.parquet", "*"])
def test_a_table_of_another_format_is_refused_from_every_side(
    tmp_path: Path, marker: str, words: str, given: str
) -> None:
    parquet(tmp_path / "orders/data/a.parquet")
    (tmp_path / "orders" / marker).parent.mkdir()
    (tmp_path / "orders" / marker).write_text("{}")
    for work in (discover, lambda paths: list(list_files(paths))):
        with pytest.raises(SourceError, match=f"orders' is an? {words} table") as caught:
            work([str(tmp_path / given)])
        assert "lake.ingest" in str(caught.value.hint)


def test_folders_that_only_look_like_tables_are_read(tmp_path: Path) -> None:
    parquet(tmp_path / "metadata/a.parquet")
    (tmp_path / "metadata/report.metadata.json").write_text("{}")
    assert discover([str(tmp_path / "metadata/a.parquet")]).rows == 1


@pytest.mark.parametrize("marker", ["_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", ICEBERG])
def test_a_table_of_another_format_is_refused_in_a_store(monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    store = MemoryStore()
    for key in ("in/orders/data/a.parquet", f"in/orders/{marker}", "in/other/b.parquet"):
        store.objects[f"s3://landing/{key}"] = b"PAR1"
    for module in ("remote", "listing", "files"):
        monkeypatch.setattr(f"lakegate.sources.{module}.open_store", lambda *_: store)
    storage = Wanted(None)
    for given in ("in/", "in/orders", "in/orders/data", "in/orders/data/a*.parquet", "in/orders/data/a.parquet"):
        _, problems = remote.resolve([f"s3://landing/{given}"], storage, None)  # type: ignore[arg-type]
        assert [problem.message.partition("' is")[0] for problem in problems] == ["'s3://landing/in/orders"]
    assert not list(remote_tables(["s3://landing/in/other/b.parquet"], None))  # type: ignore[arg-type]


def test_files_are_known_by_their_first_bytes_and_others_are_named(tmp_path: Path) -> None:
    for number, name in enumerate(("a.parquet", "000000_0", "b.parq", "c.PQ", "_h.parquet", ".d.parquet"), start=1):
        parquet(tmp_path / name, number)
    parquet(tmp_path / "_old/e.parquet")
    for name in ("notes", "readme.txt", "_SUCCESS", ".a.parquet.crc"):
        (tmp_path / name).write_text("x")
    batch = discover([str(tmp_path)])
    assert batch.rows == 1 + 2 + 3 + 4
    expected = {"_h.parquet", ".d.parquet", "_old/", "notes", "readme.txt"}
    assert {one.uri.removeprefix(to_uri(tmp_path) + "/") for one in batch.left_out} == expected
    seen: list[str] = []
    assert len(list(list_files([str(tmp_path)], left_out=lambda one: seen.append(one.uri)))) == 4
    assert seen == [one.uri for one in batch.left_out]
    assert len(local.resolve([str(tmp_path)], Wanted("csv"))[0]) == 0
