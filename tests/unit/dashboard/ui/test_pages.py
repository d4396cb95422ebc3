"""What the pages show of a full lake and of an empty one, and what people do to a branch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Never

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from lakegate.config import Settings, UiSettings
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.ui import parts, session
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import CatalogUnavailableError
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from support.app_pages import opened, share, texts
from support.big_lake import BigLake, big_lake
from support.dashboard_server import open_lake, share_house
from support.fakes import FakeLakehouse

PAGES = ("home", "branches", "runs", "history")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    lake = big_lake(tmp_path_factory.mktemp("pages"), runs=60, tables=8)
    yield lake
    lake.close()


@pytest.fixture(autouse=True)
def _nothing_stays_shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Each run looks for components in the metadata of all installed packages, most of a second.
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", list)
    yield
    session.share(None)


def find(lake: BigLake, status: str) -> Run:
    return next(run for run in reversed(lake.runs) if run.status == status)


def press(tested: AppTest, label: str) -> None:
    (button,) = (one for one in tested.button if one.label == label)
    button.click().run()
    assert not tested.exception


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_an_empty_lake_says_what_to_do(page: str, tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=0, tables=0, branches=0)
    share(lake)
    shown = opened(page)
    lake.close()
    assert shown.title[0].value == page.capitalize()
    assert not shown.error
    assert shown.info or shown.dataframe


def test_home_shows_every_table_and_finds_some(made: BigLake) -> None:
    share(made)
    page = texts(opened("home"))
    assert all(table in page for table in made.tables)
    assert "rejected batch" in page
    page = texts(opened("home", table=made.tables[0].upper()))
    assert made.tables[0] in page
    assert made.tables[1] not in page
    assert "No table matches" in texts(opened("home", table="<b>"))


def test_branches_say_which_column_fails_in_how_many_rows(made: BigLake) -> None:
    share(made)
    run = find(made, "rejected")
    (failing, *_) = run.failures
    page = opened("branches", of=run.tables[0]).dataframe[0].value
    (row,) = page[page["Branch"] == run.branch].to_dict("records")[:1]
    assert f"{', '.join(failing.columns)}: {failing.failing_rows} of {failing.total_rows} rows" in row["Failing"]
    assert row["Rows on branch"] == row["Rows before"] + 40
    assert "Rows on main" in texts(opened("branches", of=run.tables[0]))


def test_a_branch_has_a_page_of_its_own_with_the_failing_rows(made: BigLake) -> None:
    share(made)
    run = find(made, "rejected")
    page = opened("branches", branch=run.branch)
    assert not page.button, "it's read-only"
    shown = texts(page)
    assert f"lakegate publish {run.branch} --accept REASON" in shown
    assert "<script>alert(1)</script>" in shown
    assert f"run={run.run_id}" in shown


def test_runs_are_found_by_status_table_file_and_id(made: BigLake) -> None:
    share(made)
    run, other = find(made, "rejected"), find(made, "published")
    page = texts(opened("runs", status="rejected", table=run.tables[0]))
    assert run.run_id in page
    assert other.run_id not in page
    assert len(opened("runs", q=other.run_id).dataframe[0].value) == 1
    assert "No run matches" in texts(opened("runs", q="no such file"))
    assert run.run_id in texts(opened("runs", after="nonsense")), "a broken link shows the first page"


def test_pages_of_runs_lead_to_the_oldest(made: BigLake) -> None:
    share(made)
    page = opened("runs")
    press(page, "Next page")
    assert made.runs[0].run_id in texts(page)
    press(page, "First page")
    assert made.runs[-1].run_id in texts(page)


def test_a_run_shows_its_checks_files_and_commands(made: BigLake) -> None:
    share(made)
    run = find(made, "rejected")
    page = opened("run", run=run.run_id)
    shown = texts(page)
    assert run.request is not None
    for said in (run.request.batch.files[0].uri, "audit", f"lakegate discard {run.branch}", run.failures[0].check):
        assert said in shown
    assert "doesn't exist" in texts(opened("run", run="nowhere")).replace("\\", "")


@pytest.mark.parametrize("view", ["Publishes", "Columns", "Checks"])
def test_every_view_of_a_table_is_drawn(made: BigLake, view: str) -> None:
    share(made)
    page = opened("table", table=made.tables[0], view=view)
    assert not page.error
    assert len(page.dataframe) == 1
    assert len(page.dataframe[0].value) > 0


def test_history_marks_what_was_not_audited(made: BigLake) -> None:
    share(made)
    page = opened("history")
    assert "never audited" in page.warning[0].value
    assert "not audited" in set(page.dataframe[0].value["What"])


@pytest.mark.parametrize("settings", [{"examples": 0}, {"masked": ["note"]}])
def test_what_the_settings_hide_is_not_shown(made: BigLake, settings: dict[str, object]) -> None:
    run = find(made, "rejected")
    share(made)
    assert any("note" in one.value for one in opened("branches", branch=run.branch).dataframe)
    given = made.settings.model_copy(update={"ui": UiSettings.model_validate(settings)})
    model = ReadModel(
        catalog=lambda: made.catalog, reader=lambda: made.model().reader, journal=lambda: made.journal, settings=given
    )
    session.share(Shared(open_lake(made), model, Access(settings=given.ui)))
    tables = opened("branches", branch=run.branch).dataframe
    notes = {note for one in tables if "note" in one.value for note in one.value["note"]}
    assert notes <= {"•••"}


def test_text_of_data_is_never_markdown_or_html(made: BigLake) -> None:
    assert parts.plain("![x](e.png) <script>alert(1)</script> :red[a] $x$") == (
        r"\!\[x\]\(e\.png\) \<script\>alert\(1\)\<\/script\> \:red\[a\] \$x\$"
    )
    assert parts.plain("at http://e.org/`x``, WWW.e.org or a@e.org") == (
        "at ``` http://e.org/`x``, ``` ` WWW.e.org ` or ` a@e.org `"
    )
    share(made)
    for page in PAGES:
        drawn = opened(page)
        assert not drawn.get("html")
        assert not any(one.allow_html for one in drawn.markdown)
    drawn = opened("branches", branch="<script>alert(1)</script>")
    assert r"\<script\>" in drawn.title[0].value
    assert r"\<script\>" in drawn.error[0].value


def test_a_catalog_that_is_away_is_said_and_the_journal_is_shown(made: BigLake) -> None:
    def away() -> Never:
        raise CatalogUnavailableError("Nessie is away.", hint="lakegate up")

    model = ReadModel(
        catalog=away, reader=lambda: made.model().reader, journal=lambda: made.journal, settings=Settings()
    )
    session.share(Shared(open_lake(made), model, Access()))
    for page in ("home", "branches", "history"):
        shown = opened(page)
        assert "Nessie is away" in shown.error[0].value.replace("\\", "")
        assert "lakegate up" in texts(shown)
    assert made.runs[-1].run_id in texts(opened("runs"))


def test_a_batch_is_accepted_with_a_reason(
    house: FakeLakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEGATE_ACTOR", "ann@example.com")
    session.share(share_house(house, tmp_path))
    page = opened("branches", branch="wap/nyc.trips_r2")
    press(page, "Accept and publish …")
    assert "ann@example.com" in page.caption[-1].value
    press(page, "Accept and publish")
    assert "Write a reason" in texts(page)
    page.text_area[0].input("The vendor confirmed it.").run()
    press(page, "Accept and publish")
    run = house.journal.get("r2")
    assert run is not None
    assert run.status == "published"
    assert run.accepted is not None
    assert (run.accepted.reason, run.accepted.actor) == ("The vendor confirmed it.", "ann@example.com")


def test_a_branch_is_discarded_by_who_was_told_what_is_lost(house: FakeLakehouse, tmp_path: Path) -> None:
    session.share(share_house(house, tmp_path))
    page = opened("branches", branch="wap/nyc.trips_r2")
    press(page, "Discard …")
    told = texts(page)
    assert "Lost: 2 rows added to nyc.trips." in told
    assert "Its source file can be ingested again." in told
    press(page, "Cancel")
    assert "Lost:" not in texts(page)
    assert house.catalog.get_ref("wap/nyc.trips_r2").kind == "branch"
    press(page, "Discard …")
    press(page, "Discard")
    assert [ref.name for ref in house.catalog.list_refs()] == ["main"]
    gone = opened("branches", branch="wap/nyc.trips_r2")
    assert not gone.error
    assert "no longer exists" in gone.info[0].value
    assert "run=r2" in texts(gone)


def test_nobody_decides_on_rows_that_they_have_not_seen(house: FakeLakehouse, tmp_path: Path) -> None:
    session.share(share_house(house, tmp_path))
    page = opened("branches", branch="wap/nyc.trips_r2")
    branch = house.catalog.get_ref("wap/nyc.trips_r2")
    (pointer,) = house.catalog.list_tables(branch)
    request = CommitRequest(branch=branch.name, base=branch.hash, message="m", deletes=(pointer.table,))
    press(page, "Discard …")
    house.catalog.commit(request)
    press(page, "Discard")
    assert "was written to since you looked at it" in texts(page).replace("\\", "")


def test_without_a_login_nothing_is_shown(made: BigLake) -> None:
    session.share(Shared(open_lake(made), made.model(), Access(login=True)))
    page = opened("home")
    assert [one.label for one in page.button] == ["Log in"]
    assert not page.dataframe
