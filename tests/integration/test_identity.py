"""One file under many names, on real Spark and Nessie."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import NewerFormatError
from lakegate.journal.factory import open_sqlite
from lakegate.lake import Lake
from lakegate.ledger.event import PROPERTY
from lakegate.model.refs import CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.progress import SilentNarrator

pytestmark = pytest.mark.jvm


@pytest.fixture
def stranger(components: Components, tmp_path: Path) -> Iterator[Lake]:
    """The same lake with a journal that knows nothing of it."""
    other = Components(components.home, components.settings, session=None, narrator=SilentNarrator())
    other.__dict__["journal"] = open_sqlite(tmp_path / "other.db")
    with Lake(other) as opened:
        yield opened


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(10))}), path)
    return path


def test_each_file_once_whatever_link_leads_to_it(lake: Lake, stranger: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.t"
    real = write(tmp_path / "real/a.parquet")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link.parquet").symlink_to(real)
    first = lake.ingest(table, tmp_path / "link.parquet", checks=["unique(id)"])
    assert (first.status, lake.table(table).rows) == ("published", 10)

    for of, name in ((lake, "folder/a.parquet"), (lake, "*.parquet"), (stranger, "real/a.parquet")):
        again = of.ingest(table, str(tmp_path / name))
        assert (again.status, of.table(table).rows) == ("skipped", 10), name
        assert again.skipped_files[0].run_id == first.run_id

    copy = Path(shutil.copy2(real, tmp_path / "copy.parquet"))
    assert lake.ingest(table, copy).status == "published"
    assert lake.table(table).rows == 20


def test_what_a_newer_lakegate_published_stops_ingests_and_no_reading(
    lake: Lake, components: Components, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.t"
    file = write(tmp_path / "a.parquet")
    lake.ingest(table, file)
    main = components.catalog.get_ref("main")
    properties = {RUN_ID_PROPERTY: "r9", PROPERTY: f'{{"v":9,"tables":{{"{table}":{{}}}}}}'}
    newer = components.catalog.commit(
        CommitRequest(
            branch="main", base=main.hash, message="m", namespaces=((f"{namespace}_2",),), properties=properties
        )
    )
    try:
        with pytest.raises(NewerFormatError, match=rf"{newer.hash[:12]}.*{table}.*format 9.*newer lakegate"):
            lake.ingest(table, file, on_changed="append")
        assert lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"][0].as_py() == 10
        assert lake.table(table).rows == 10
        assert next(lake.log()).hash == newer.hash
    finally:
        lake.branches.reset("main", to=main.hash, force=True)
    assert lake.ingest(table, file).status == "skipped"
