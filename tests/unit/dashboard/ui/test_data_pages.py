"""What the table, history, files and query pages show and refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakegate.dashboard.overview import TableOverview
from lakegate.dashboard.queries import Queries
from lakegate.dashboard.ui import parts, session
from lakegate.errors import EngineUnavailableError, NotRevertableError, QueryError
from lakegate.lake import Lake
from lakegate.model.run import Publication, Run, UndoneTable
from lakegate.table import Query
from support.app_pages import html_of, opened, share, shown
from support.big_lake import BigLake, big_lake


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    lake = big_lake(tmp_path_factory.mktemp("pages"), runs=60, tables=4)
    yield lake
    lake.close()


@pytest.fixture(autouse=True)
def _nothing_stays_shared() -> Iterator[None]:
    yield
    session.share(None)


def find(lake: BigLake, status: str, kind: str = "ingest") -> Run:
    return next(run for run in reversed(lake.runs) if (run.status, run.kind) == (status, kind))


# Table


def test_a_table_shows_its_snapshots_and_the_runs_that_made_them(made: BigLake) -> None:
    share(made)
    tested = opened("table", table=made.tables[0])
    page = html_of(tested)
    assert f">{made.tables[0]}</bdi>" in page
    assert "(current)" in page
    assert [one.proto.alt.startswith("Rows that each of the last") for one in tested.get("vega_lite_chart")] == [True]


@pytest.mark.parametrize("view", ["Columns", "Checks", "Schema", "Files", "Preview", "Properties"])
def test_each_view_of_a_table_holds_data_as_text_alone(made: BigLake, view: str) -> None:
    share(made)
    page = shown("table", table=made.tables[0], view=view)
    assert "This is a bug" not in page
    assert "<script" not in page
    assert "<b>bold</b>" not in page
    assert len(page) < 200_000


def test_columns_show_null_rates_and_bounds_unless_they_are_hidden(made: BigLake) -> None:
    share(made)
    page = shown("table", table=made.tables[0], view="Columns", column="FARE")
    assert ">fare</bdi>" in page
    assert ">region</bdi>" not in page
    assert ">hidden<" not in page
    share(made, masked=("fa*",))
    assert ">hidden<" in shown("table", table=made.tables[0], view="Columns", column="fare")


def test_rows_are_hidden_as_the_settings_say(made: BigLake) -> None:
    share(made, masked=("region",))
    assert "•••" in shown("table", table=made.tables[0], view="Preview")
    share(made, examples=0)
    assert "Rows of data are hidden" in shown("table", table=made.tables[0], view="Preview")


def test_a_check_says_since_when_it_fails(made: BigLake) -> None:
    share(made)
    table = find(made, "rejected").tables[0]
    page = shown("table", table=table, view="Checks")
    assert "fail" in page
    assert ", from " in page
    assert "/run?run=" in page


@pytest.mark.parametrize(
    ("late_s", "said"),
    [(7200.0, "Late by 2 h 0 min, expected every 1d."), (0.0, "Late: nothing published yet, expected every 1d.")],
)
def test_a_late_table_says_by_how_much(
    made: BigLake, monkeypatch: pytest.MonkeyPatch, late_s: float, said: str
) -> None:
    late = TableOverview(table=made.tables[0], expected_every="1d", late_s=late_s)
    monkeypatch.setattr("lakegate.dashboard.tables.table_overview", lambda *_: late)
    share(made)
    assert said in shown("table", table=made.tables[0])


def test_a_table_that_is_not_there_leaves_a_way_back(made: BigLake) -> None:
    share(made)
    assert "doesn&#39;t exist" in shown("table", table="no.such_table")
    page = shown("table", table=made.tables[0], ref="wap/none", at="yesterday")
    assert "See it on main now" in page
    assert "See all tables" in shown("table")
    assert "This is a bug" not in shown("table", table="<script>")


# History


def test_history_marks_reverts_and_what_no_audit_saw(made: BigLake) -> None:
    share(made)
    page = shown("history")
    published = find(made, "published")
    assert f"/run?run={published.run_id}" in page
    assert "Revert…" not in page
    assert ">1970" not in page
    assert "the start of a page" in shown("history", after="nonsense")
    assert "wap/none" in shown("history", ref="wap/none")


def test_who_may_not_act_sees_the_command(made: BigLake) -> None:
    share(made)
    run = find(made, "published")
    tested = opened("history", revert=run.run_id)
    assert f"lakegate revert {run.run_id} --dry-run" in html_of(tested)
    assert [button.label for button in tested.button] == ["Close"]


def test_a_revert_shows_what_it_changes_and_is_recorded(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = find(made, "published"), list[dict[str, Any]]()

    def revert(lake: Lake, run_id: str, **options: Any) -> Run:
        asked.append(options)
        if len(asked) > 2:
            raise NotRevertableError("Another writer changed it.", hint="lakegate table restore")
        undone = (UndoneTable(table=run.tables[0], rows=-40, data_files=-1),)
        did = (
            None
            if options.get("dry_run")
            else Publication(run_id="r", target="main", commit="c" * 64, tables=(), rows=0)
        )
        return run.model_copy(update={"undone": undone, "reverts": (run_id,), "publication": did})

    monkeypatch.setattr(Lake, "revert", revert)
    share(made, actions=True)
    tested = opened("history", revert=run.run_id)
    assert ">-40<" in html_of(tested).replace('<bdi class="value">', "").replace("</bdi>", "<")
    assert asked == [{"dry_run": True}]
    tested.button(key="revert-do").click().run()
    assert asked[1:] == [{"actor": asked[1]["actor"]}]
    assert asked[1]["actor"]
    assert "Reverted" in html_of(tested)
    refused = opened("history", revert=run.run_id)
    assert "Another writer changed it." in html_of(refused)
    assert "revert-do" not in [button.key for button in refused.button]


# Files


def test_files_are_found_by_name_and_table(made: BigLake) -> None:
    share(made)
    run = find(made, "published")
    page = shown("files", table=run.tables[0])
    assert f"/run?run={run.run_id}" in page
    assert "<script" not in page
    nothing = shown("files", search="no such file")
    assert "No such file was published" in nothing
    assert "./runs?q=no+such+file" in nothing
    assert "the start of a page" in shown("files", after="nonsense")


def test_an_empty_lake_says_what_to_do(tmp_path: Any) -> None:
    lake = big_lake(tmp_path, runs=0)
    share(lake)
    assert "lakegate ingest" in shown("files")
    assert "There are no commits yet" in shown("history")
    lake.close()


# Query


class Frame:
    """The part of a DataFrame that a query needs."""

    def __init__(self, rows: Callable[[], pa.Table]) -> None:
        self.rows = rows

    def limit(self, rows: int) -> Frame:
        return self


class Answers:
    """A lake that answers queries without Spark."""

    def query(self, sql: str, *, ref: str, at: Any) -> Query:
        if sql == "DROP":
            raise QueryError("A query can only read, but this is a DROP statement.")
        if sql == "away":
            raise EngineUnavailableError("Lost the connection to Spark.", hint="lakegate status")
        rows = pa.table({"day": ["a", "b"] * 600, "<b>n</b>": range(1_200)})
        return Query(Frame(lambda: rows), lambda frame: frame.rows(), lambda frame: iter(()))

    def close(self) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lake: Any = Answers()
    queries = Queries(lambda narrator: lake)
    monkeypatch.setattr(parts, "queries", lambda known: queries)
    yield
    queries.close()


def asked(sql: str) -> Any:
    tested = opened("query", sql=sql)
    assert "starts Spark" in html_of(tested), "what a link brings isn't run by itself"
    tested.button[0].click().run()
    assert tested.session_state["query-job"].wait(120)
    return tested.run()


def test_a_query_shows_its_result_in_pages(made: BigLake, answers: None) -> None:
    share(made)
    tested = asked("SELECT")
    assert not tested.exception
    assert "The first 1,000 rows of more" in html_of(tested)
    assert list(tested.dataframe[0].value.columns) == ["day", "<b>n</b>"]
    assert len(tested.dataframe[0].value) == 500
    tested.number_input[0].set_value(2).run()
    assert tested.dataframe[0].value["<b>n</b>"].iloc[0] == 500


def test_a_query_that_may_not_run_says_why(made: BigLake, answers: None) -> None:
    share(made)
    assert "this is a DROP statement" in html_of(asked("DROP"))


def test_an_engine_that_is_away_shows_as_such(made: BigLake, answers: None) -> None:
    share(made)
    page = html_of(asked("away"))
    assert "Lost the connection to Spark." in page
    assert "all other pages work without it" in page


def test_queries_are_closed_where_rows_are_hidden(made: BigLake, answers: None) -> None:
    for settings in ({"examples": 0}, {"masked": ("email",)}, {"query": False}):
        share(made, **settings)
        tested = opened("query", sql="SELECT 1")
        assert "Queries are turned off" in html_of(tested)
        assert not tested.button
    share(made, masked=("email",), query=True)
    assert opened("query").button
