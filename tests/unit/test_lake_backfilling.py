"""The facade's part that tells which of many files are published already."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import FakeLakehouse
from lakegate.config import Settings
from lakegate.lake import Lake
from lakegate.model.batch import SourceFile
from lakegate.model.run import Run
from lakegate.narration import SilentNarrator
from lakegate.sources.paths import stat_file, to_uri

TABLE = "nyc.trips"


@pytest.fixture
def house() -> FakeLakehouse:
    return FakeLakehouse()


@pytest.fixture
def lake(house: FakeLakehouse) -> Lake:
    wiring: Any = SimpleNamespace(
        settings=Settings(), journal=house.journal, rooms=house.rooms, narrator=SilentNarrator(), catalog=house.catalog
    )
    return Lake(wiring)


def claimed(house: FakeLakehouse, path: Path, run: Run) -> None:
    """Let a run be at a file in the version that it has now."""
    found = stat_file(str(path))
    assert found is not None
    file = SourceFile(uri=to_uri(path), size_bytes=1, version=found.content_version(), rows=1)
    house.journal.begin(run)
    house.journal.claim(run.run_id, TABLE, [file])


def a_run(run_id: str, **changes: Any) -> Run:
    fields = {
        "run_id": run_id,
        "tables": (TABLE,),
        "branch": "",
        "status": "running",
        "started_at": "2024-01-01T00:00Z",
    }
    return Run.model_validate(fields | changes)


def test_each_file_is_new_published_changed_or_busy(house: FakeLakehouse, lake: Lake, tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("new", "published", "touched", "changed", "vanished", "busy")}
    for name, path in paths.items():
        path.write_text(name, encoding="utf-8")
    lake.known_files(TABLE, [])  # a journal that knows nothing of the history yet would learn it first
    for name in ("published", "touched", "changed", "vanished"):
        claimed(house, paths[name], a_run(f"r-{name}"))
        house.journal.end(a_run(f"r-{name}", status="published"))
    claimed(house, paths["busy"], a_run("r-busy"))
    paths["touched"].touch()
    paths["changed"].write_text("other", encoding="utf-8")
    paths["vanished"].unlink()

    known = lake.known_files(TABLE, [to_uri(path) for path in paths.values()])
    assert {one.run_id for one in known.published} == {"r-published", "r-touched"}
    assert [one.run_id for one in known.changed] == ["r-changed"]
    assert [one.run_id for one in known.busy] == ["r-busy"]
    assert {file.uri for file in known.free} == {to_uri(paths["new"]), to_uri(paths["vanished"])}
    assert lake.known_files("nyc.others", [to_uri(paths["published"])]).published == ()


def test_files_that_nobody_published_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lakegate.lake.backfilling._version", pytest.fail)
    assert len(lake.known_files(TABLE, [to_uri(tmp_path / "a.parquet")]).free) == 1
