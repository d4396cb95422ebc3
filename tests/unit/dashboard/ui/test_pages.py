"""What the pages show of a full lake and of an empty one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
import uvicorn

from lakegate.config import Settings, UiSettings
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.overview import Overview, PublishPoint, TableOverview
from lakegate.dashboard.queries import Queries
from lakegate.dashboard.ui import actions, parts, server, session
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.pages import home
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import CatalogUnavailableError, ConflictError, InputError
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.lake import Lake
from lakegate.model.downstream import Delivery, DownstreamStatus
from lakegate.model.run import Run
from lakegate.table import Query, RowDifference
from support.app_pages import html_of, opened, share, shown
from support.big_lake import BigLake, big_lake
from support.dashboard_server import open_lake
from support.fakes import FakeLakehouse
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    lake = big_lake(tmp_path_factory.mktemp("pages"), runs=60, tables=8)
    yield lake
    lake.close()


@pytest.fixture(autouse=True)
def _nothing_stays_shared() -> Iterator[None]:
    yield
    session.share(None)


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


@pytest.mark.parametrize("was_published", [True, False])
def test_a_table_that_is_gone_is_not_one_that_is_still_to_come(
    made: BigLake, monkeypatch: pytest.MonkeyPatch, *, was_published: bool
) -> None:
    share(made)
    at = datetime(2026, 1, 31, tzinfo=UTC)
    publish = PublishPoint(run_id="r1", at=at) if was_published else None
    one = TableOverview(table="nyc.trips", exists=False, last_publish=publish)
    monkeypatch.setattr(home, "overview", lambda *_, **__: Overview(items=(one,)))
    page = str(home.prerendered())
    assert (">gone<" in page, ">not yet<" in page) == (was_published, not was_published)


def test_runs_are_found_by_status_table_and_id(made: BigLake) -> None:
    share(made)
    run, other = find(made, "rejected"), find(made, "published")
    page = shown("runs", status="rejected", table=run.tables[0])
    assert run.run_id in page
    assert other.run_id not in page
    assert shown("runs", q=other.run_id).count('href="./run?run=') == 1
    assert "No run matches" in shown("runs", q="no such file")
    assert run.run_id in shown("runs", after="nonsense"), "a broken link shows the first page"


def test_a_search_that_has_not_come_to_the_oldest_says_so_and_goes_on(
    made: BigLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(made)
    monkeypatch.setattr("lakegate.journal.pages._MOST_RUNS_SEARCHED", 40)
    monkeypatch.setattr("lakegate.journal.pages._FILES_SEARCHED_AT_ONCE", (40,))
    for path, word, none in (("runs", "q", "No run matches<"), ("files", "search", "No such file was published")):
        page = opened(path, **{word: "no such file"})
        assert "among the newest ones" in html_of(page)
        (following,) = (button for button in page.button if button.label == "Next page")
        following.click().run()
        assert none in html_of(page)


def test_the_search_finds_runs_by_ids_of_any_form(made: BigLake) -> None:
    share(made)
    run = find(made, "rejected").model_copy(update={"run_id": "nyc.trips-2024-01-31"})
    made.journal.save(run)
    for text in ("nyc.trips-2024", "nyc.trips-2024-01-31"):
        assert "run=nyc.trips-2024-01-31" in shown("runs", q=text)
    assert "No run matches" in shown("runs", q="trips-2024-01")


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
    commit = getattr(find(made, "published").publication, "commit", "")
    assert f"./history?ref={commit}" in shown("run", run=find(made, "published").run_id)
    assert "doesn&#39;t exist" in shown("run", run="19700101T000000-00000000")
    assert "No run was chosen" in shown("run")


def test_a_run_with_hundreds_of_failed_checks_shows_them_in_pages(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=20, tables=1)
    run = find(lake, "rejected")
    row = {f"column_{number}": f"value {number}" for number in range(60)}
    failed = run.failures[0].model_copy(update={"examples": (row,) * 10, "columns": ("column_59",)})
    results = tuple(failed.model_copy(update={"name": f"check_{n}", "check": f"check {n}"}) for n in range(200))
    lake.journal.save(run.model_copy(update={"reports": (run.reports[0].model_copy(update={"results": results}),)}))
    share(lake)
    page = shown("run", run=run.run_id[:-1])
    assert len(page) < 2_000_000
    assert "30 failed checks of 200" in page
    assert "40 of 60 columns" in page
    assert page.count('class="mark"') == 300
    last = shown("run", run=run.run_id, checks="180")
    assert "<code>check 199</code>" in last
    assert "<code>check 0</code>" in shown("run", run=run.run_id, checks="x")
    lake.close()


def test_a_run_under_way_is_shown(made: BigLake) -> None:
    share(made)
    run = find(made, "running")
    page = shown("run", run=run.run_id)
    assert run.run_id in page
    assert "not there yet" in page
    assert "dropped" not in page


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


class Differences:
    """A lake that knows which rows a branch changes, without Spark."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def diff_rows(self, table: str, left: str, right: str, *, left_at: str | None) -> RowDifference:
        self.asked.append((table, left, right, str(left_at)))
        rows = pa.table({"id": range(30), "email": ["<script>"] * 30})
        frame = SimpleNamespace(rows=rows, limit=lambda most: SimpleNamespace(rows=rows.slice(0, most)))
        return RowDifference(Query(frame, lambda one: one.rows, lambda _: iter(())), None)

    def close(self) -> None:
        pass


def test_a_lake_with_one_table_shows_its_rows_and_hides_no_branch(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=1, tables=1)
    share(lake)
    page = shown("branches")
    assert f"Rows of {lake.tables[0]} on each branch" in page
    assert "No branches besides main" in page
    lake.catalog.create_branch("dbt/pr-1", lake.catalog.get_ref("main"))
    share(lake)
    assert "dbt%2Fpr-1" in shown("branches")
    lake.close()


def test_a_branch_shows_its_rows_once_somebody_asks(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake: Any = Differences()
    queries = Queries(lambda narrator: lake)
    monkeypatch.setattr(parts, "queries", lambda known: queries)
    share(made, masked=("id",))
    run = next(one for one in reversed(made.runs) if one.status == "rejected" and one.branch_kept)
    tested = opened("branches", branch=run.branch)
    assert "Spark reads them" in html_of(tested)
    assert lake.asked == [], "it isn't asked for by itself"
    tested.button(key="lg-rows-show").click().run()
    for key in ("lg-rows-added", "lg-rows-removed"):
        assert tested.session_state[key].wait(120)
    page = html_of(tested.run())
    assert set(lake.asked) == {(run.tables[0], "main", run.branch, str(run.base))}
    assert "The first 20 rows of more" in page
    assert page.count("&lt;script&gt;</bdi>") == 20
    assert page.count(">•••<") >= 20
    assert "No rows." in page
    queries.close()


def test_rows_of_a_branch_follow_the_settings(made: BigLake) -> None:
    run = next(one for one in reversed(made.runs) if one.status == "rejected" and one.branch_kept)
    for settings in ({"examples": 0}, {"query": False}):
        share(made, **settings)
        tested = opened("branches", branch=run.branch)
        assert "Rows of data are hidden" in html_of(tested)
        assert not tested.button


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
    assert "No branches besides main" in shown("branches")
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
    assert "lakegate downstream retry glue" in page


def test_home_shows_how_far_downstream_systems_are(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    share(made)
    assert "Downstream systems" not in shown("")
    at = made.runs[-1].started_at
    systems = [
        DownstreamStatus(name="dbt", pending=3, failed=1, oldest=at, reason="<b>exit 1</b>"),
        DownstreamStatus(name="glue", sent=7, last_sent_at=at),
    ]
    monkeypatch.setattr(type(made.journal.outbox), "status", lambda _: systems)
    page = shown("")
    assert "lakegate downstream retry dbt" in page
    assert "&lt;b&gt;exit 1" in page
    assert "up to date" in page
    assert "not in the settings here" in page


def test_quarantined_rows_are_on_the_pages_of_their_table_and_run(house: FakeLakehouse, load: Load) -> None:
    checks = ["not_null(id, severity='quarantine')", "in_range(fare, min=0, severity='quarantine')"]
    odd = "<b>\N{RIGHT-TO-LEFT OVERRIDE}x"
    run = load({"id": 1, "fare": 1, odd: ""}, {"id": None, "fare": -77.25, odd: "<script>"}, checks=checks)

    lake: Any = SimpleNamespace(home=Path(), settings=Settings())

    def share(**settings: Any) -> None:
        access = Access("none", allow_actions=False, settings=UiSettings(**settings))
        session.share(Shared(lake, model_of(house, ui=settings), access))

    share()
    assert "1 quarantined row" in shown("")
    for page in (shown("table", table="nyc.trips", view="Quarantine"), shown("run", run=run.run_id)):
        assert page.count('class="mark"') >= 2
        assert "-77.25" in page
        assert "<script>" not in page
        assert "&lt;script&gt;" in page
        assert "lakegate quarantine release nyc.trips" in page
    share(examples=0)
    for page in (shown("table", table="nyc.trips", view="Quarantine"), shown("run", run=run.run_id)):
        assert "-77.25" not in page
    share(masked=["FARE"])
    assert "-77.25" not in shown("run", run=run.run_id)


def test_quarantined_rows_can_be_released_or_deleted_by_who_may(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load({"id": 1, "fare": 1}, {"id": None, "fare": 2}, checks="not_null(id, severity='quarantine')")
    release = Mock(return_value=run)
    model = model_of(house)
    lake: Any = SimpleNamespace(home=Path(), settings=Settings(), quarantine_release=release)
    for may_act in (False, True):
        session.share(Shared(lake, model, Access("none", may_act, UiSettings())))
        for app in (opened("table", table="nyc.trips", view="Quarantine"), opened("run", run=run.run_id)):
            keys = {button.key for button in app.button}
            assert ({"lg-release-nyc.trips", "lg-drop-nyc.trips"} <= keys) == may_act
    app.button(key="lg-release-nyc.trips").click().run()
    assert "</bdi>: 1 row<" in html_of(app), "it asks first"
    assert app.button(key="lg-confirm").label == "Release"
    monkeypatch.setattr(actions, "_confirm", lambda offer: offer.do("ann", ""))
    app.button(key="lg-release-nyc.trips").click().run()
    assert release.call_args.kwargs["confirmed"] == {run.run_id: 1}, "it does what it asked"
    assert release.call_args.kwargs["confirmed_at"] == house.catalog.get_ref("main").hash


def share_house(house: FakeLakehouse, *, act: bool = False) -> Lake:
    """Have the pages show a lake in memory, and return the lake."""
    parts = {"catalog": house.catalog, "reader": house, "journal": house.journal, "context": house.context}
    components: Any = SimpleNamespace(**parts, settings=Settings(), home=Path())
    lake = Lake(components)
    session.share(Shared(lake, model_of(house), Access("none", act, UiSettings())))
    return lake


def test_all_windows_of_a_visitor_say_how_an_action_ended(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEGATE_ACTOR", "ann")
    run = load({"id": 1}, {"id": None}, checks="not_null(id, severity='quarantine')")
    share_house(house)
    goes_on = Event()
    work = session.BackgroundAction("drop", "nyc.trips", "ann").begin(lambda: run if goes_on.wait(60) else None)
    session.BackgroundAction("discard", "bobs", "bob").begin(lambda: None)
    one, other = opened("run", run=run.run_id), opened("")
    for window in (one, other):
        assert "Deleting</span> quarantined rows of <code>nyc.trips" in html_of(window)
        assert not [button for button in window.button if button.label == "Dismiss"]
    goes_on.set()
    assert work.ended(60)
    for window in (one, other, one):
        assert "deleted</span> quarantined rows of <code>nyc.trips" in html_of(window.run()), "until it's dismissed"
        assert "bobs" not in html_of(window)
    next(button for button in one.button if button.label == "Dismiss").click().run()
    other.run()
    for window in (one, other, opened("runs")):
        assert "quarantined rows of <code>nyc.trips" not in html_of(window)


def test_an_action_that_fails_is_not_lost_with_its_window(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEGATE_ACTOR", "ann")
    load({"id": 1})
    share_house(house)

    def fail() -> Run:
        raise InputError("Rows fail <b>not_null(id)</b>.", hint="Fix them.")

    assert session.BackgroundAction("release", "nyc.trips", "ann").begin(fail).ended(60)
    page = shown("")
    assert "Releasing nyc.trips failed: Rows fail &lt;b&gt;not_null(id)" in page
    assert "Fix them." in page


def test_a_branch_that_was_written_to_meanwhile_is_neither_accepted_nor_discarded(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load({"id": None})
    lake = share_house(house, act=True)
    offered: list[Any] = []
    monkeypatch.setattr(actions, "_confirm", offered.append)
    for key in ("accept", "discard"):
        opened("branches", branch=run.branch).button(key=f"lg-{key}-{run.branch}").click().run()
    other = load({"id": None}, {"id": None})
    house.catalog.assign_ref(house.catalog.get_ref(run.branch), house.catalog.get_ref(other.branch))
    for offer in offered:
        with pytest.raises(ConflictError, match="was written to since you looked at it"):
            offer.do("ann", "It's fine.")
    assert {one.status for one in lake.runs()} == {"rejected"}


def test_the_server_waits_for_actions_but_not_when_told_twice(house: FakeLakehouse, load: Load) -> None:
    run = load({"id": 1})
    share_house(house)
    known, goes_on = session.shared().actions, Event()
    work = session.BackgroundAction("publish", "b", "ann").begin(lambda: run if goes_on.wait(60) else None)
    told: list[Any] = []

    def stop(*, force: bool) -> None:
        def waiting(names: Any) -> None:
            told.append(names)
            running.force_exit = force
            if not force:
                goes_on.set()

        running = server.DashboardServer(uvicorn.Config(lambda *_: None), known, lambda: None, waiting)
        vars(running).update(servers=[], lifespan=SimpleNamespace(shutdown=lambda: asyncio.sleep(0)))
        asyncio.run(running.shutdown())

    stop(force=True)
    assert not work.is_done
    stop(force=False)
    assert work.is_done
    assert told == [["publish b"], ["publish b"]]
