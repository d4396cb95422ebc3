"""Two projects with one journal address: a journal belongs to one catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakegate.components import Components
from lakegate.config import CatalogSettings, JournalSettings, Settings
from lakegate.errors import ConfigurationError
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.model.run import Run
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog


def project(home: Path, journal: Path, catalog: MemoryCatalog) -> Lake:
    """Open a project with a catalog of its own."""
    home.mkdir(exist_ok=True)
    settings = Settings(
        catalog=CatalogSettings(uri="http://nessie.test/api/v2", warehouse=(home / "warehouse").as_uri()),
        journal=JournalSettings(url=f"sqlite:///{journal}"),
    )
    components = Components(home, settings, session=None, narrator=SilentNarrator())
    components.catalog = catalog
    return Lake(components)


def test_another_project_leaves_the_runs_of_a_journal_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    ours, theirs = MemoryCatalog(), MemoryCatalog()
    with project(tmp_path / "ours", path, ours) as lake:
        assert lake.recover() == ()
    now = datetime.now(UTC)
    long_ago = SqliteDatabase(path, clock=lambda: now - timedelta(hours=1))
    journal = Journal(long_ago)
    run = Run(run_id="r1", kind="ingest", tables=("nyc.trips",), branch="wap/r1", status="created", started_at=now)
    journal.begin(run)
    journal.close()

    with project(tmp_path / "theirs", path, theirs) as other:
        for work in (other.recover, other.maintenance.rebuild_journal, other.transaction):
            with pytest.raises(ConfigurationError, match="is that of another catalog") as caught:
                work()
            assert caught.value.context["setting"] == "journal.url"
            assert "lakegate admin journal rebuild" in (caught.value.hint or "")
        assert [one.status for one in other.runs()] == ["created"], "what doesn't ask the catalog isn't refused"
    with project(tmp_path / "moved", path, ours) as lake:
        assert [one.status for one in lake.recover()] == ["failed"]


def test_a_catalog_that_replaced_another_gets_an_empty_journal(tmp_path: Path) -> None:
    with project(tmp_path / "p", tmp_path / "old.db", MemoryCatalog()) as lake:
        lake.recover()
    replacement = MemoryCatalog()
    with project(tmp_path / "p", tmp_path / "old.db", replacement) as lake, pytest.raises(ConfigurationError):
        lake.recover()
    with project(tmp_path / "p", tmp_path / "new.db", replacement) as lake:
        lake.maintenance.rebuild_journal()
        assert lake.recover() == ()
