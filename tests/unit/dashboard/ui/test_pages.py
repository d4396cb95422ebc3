"""What the pages show of a lake with anything in it, and of one with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lakegate.config import UiSettings
from lakegate.dashboard.ui import session, shell
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
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


def shown(page: str, **parameters: str) -> str:
    tested = AppTest.from_file(str(SCRIPT), default_timeout=30)
    for name, value in parameters.items():
        tested.query_params[name] = value
    if page:
        tested.switch_page(page)
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
