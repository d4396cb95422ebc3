"""What the pages show of a lake with anything in it, and of one with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lakegate.config import UiSettings
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.ui import session, shell
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.navigation import find_pages
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import CatalogUnavailableError
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.downstream import Delivery
from lakegate.model.run import Run
from support.big_lake import BigLake, big_lake
from support.dashboard_server import open_lake

SCRIPT = Path(shell.__file__).parents[1] / "script.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    lake = big_lake(tmp_path_factory.mktemp("pages"), runs=60, tables=8)
    yield lake
    lake.close()


@pytest.fixture(autouse=True)
def _nothing_stays_shared() -> Iterator[None]:
    yield
    session.share(None)


def share(lake: BigLake, **settings: Any) -> None:
    session.share(Shared(open_lake(lake), lake.model(), Access("none", False, UiSettings(**settings))))  # noqa: FBT003


def shown(path: str, **parameters: str) -> str:
    # AppTest opens the first page only: let it be the one.
    page = next(page for page in find_pages() if page.path == path)
    tested = AppTest.from_file(str(SCRIPT), default_timeout=30)
    for name, value in parameters.items():
        tested.query_params[name] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "find_pages", lambda: (replace(page, path="", listed=True),))
        tested.run()
    assert not tested.exception
    return "\n".join(str(one.proto.body) for one in tested.get("html") if hasattr(one.proto, "body"))


def find(lake: BigLake, status: str) -> Run:
    return next(run for run in reversed(lake.runs) if run.status == status)


def test_home_shows_every_table(made: BigLake) -> None:
    share(made)
    page = shown("")
    for table in made.tables:
        assert f">{table}</bdi>" in page
    assert "Needs you" in page


def test_home_finds_tables_by_name(made: BigLake) -> None:
    share(made)
    page = shown("", q=made.tables[0].upper())
    assert f">{made.tables[0]}</bdi>" in page
    assert f">{made.tables[1]}</bdi>" not in page
    assert "Nothing matches &#39;&lt;b&gt;&#39;" in shown("", q="<b>")


def test_runs_are_found_by_status_table_and_id(made: BigLake) -> None:
    share(made)
    run, other = find(made, "rejected"), find(made, "published")
    page = shown("runs", status="rejected", table=run.tables[0])
    assert run.run_id in page
    assert other.run_id not in page
    assert shown("runs", q=other.run_id).count('href="./run?run=') == 1
    assert "No run matches" in shown("runs", q="no such file")
    assert run.run_id in shown("runs", after="nonsense"), "a broken link shows the first page"


def test_a_run_shows_steps_checks_examples_and_what_to_type(made: BigLake) -> None:
    share(made)
    run = find(made, "rejected")
    page = shown("run", run=run.run_id)
    failed = run.failures[0]
    assert all(f"</i>{step.name}</span>" in page for step in run.steps)
    assert f"<b>{failed.failing_rows:,}</b>" in page
    assert 'class="mark"' in page
    assert "<script" not in page
    assert f"lakegate discard {run.branch}" in page
    assert "doesn&#39;t exist" in shown("run", run="19700101T000000-00000000")
    assert "No run was chosen" in shown("run")


def test_a_run_under_way_is_shown(made: BigLake) -> None:
    share(made)
    run = find(made, "running")
    assert run.run_id in shown("run", run=run.run_id)


def test_examples_follow_the_settings(made: BigLake) -> None:
    run = find(made, "rejected")
    share(made, examples=0)
    page = shown("run", run=run.run_id)
    assert 'class="mark"' not in page
    assert "not shown (setting" in page
    share(made, masked=("*",))
    page = shown("run", run=run.run_id)
    assert 'class="mark"><bdi class="value">•••</bdi>' in page
    assert "A very long cell" not in page


def test_branches_say_why_they_wait_and_how_many_rows_they_have(made: BigLake) -> None:
    share(made)
    run = next(one for one in reversed(made.runs) if one.status == "rejected" and one.branch_kept)
    page = shown("branches", table=run.tables[0])
    assert run.branch in page
    assert "Against main" in page
    assert f'<b class="bad">{run.failures[0].failing_rows:,}</b>' in page
    page = shown("branches", branch=run.branch)
    assert f"Branch {run.branch}" in page
    assert "Recorded as" not in page
    assert "&#39;wap/none&#39;" in shown("branches", branch="wap/none")


def test_a_catalog_that_is_away_hides_what_needs_it_only(made: BigLake) -> None:
    def away() -> Any:
        raise CatalogUnavailableError("Nessie is away.", hint="lakegate up")

    share(made)
    model = ReadModel(catalog=away, reader=IcebergTableReader, journal=lambda: made.journal, settings=made.settings)
    session.share(Shared(open_lake(made), model, Access()))
    for page in ("", "branches"):
        assert "Nessie is away." in shown(page)
    assert made.tables[0] in shown("")
    run = find(made, "rejected")
    assert "Steps" in shown("run", run=run.run_id)


def test_an_empty_lake_says_what_to_do(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=0)
    share(lake)
    assert "lakegate demo" in shown("")
    assert "Nothing waits beside main" in shown("branches")
    assert "lakegate ingest" in shown("runs")
    lake.close()


def test_a_run_shows_what_downstream_systems_were_told(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    share(made)
    run = find(made, "published")
    delivery = Delivery(
        delivery_id=1,
        downstream="glue",
        kind="published",
        ref="main",
        run_id=run.run_id,
        tables=run.tables,
        state="failed",
        queued_at=run.started_at,
        reason="<script>alert(1)</script>",
    )
    monkeypatch.setattr(type(made.journal.outbox), "list", lambda *_, **__: [delivery])
    page = shown("run", run=run.run_id)
    assert "Downstream systems" in page
    assert "glue" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
