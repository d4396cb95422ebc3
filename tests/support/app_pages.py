"""The dashboard's pages without a browser, on a lake made by ``big_lake`` or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from lakegate.config import UiSettings
from lakegate.dashboard import script
from lakegate.dashboard.ui import session
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
from support.big_lake import BigLake
from support.dashboard_server import open_lake


def share(lake: BigLake, *, actions: bool = False, **settings: Any) -> None:
    """Let pages show a lake."""
    access = Access(allow_actions=actions, settings=UiSettings(**settings))
    session.share(Shared(open_lake(lake), lake.model(), access))


def opened(page: str, **parameters: str) -> AppTest:
    """Return a page that was drawn without an exception."""
    tested = AppTest.from_file(script.__file__, default_timeout=120)
    tested.switch_page(str(Path("ui/pages", f"{page}.py")))
    for name, value in parameters.items():
        tested.query_params[name] = value
    tested.run()
    assert not tested.exception
    return tested


def texts(tested: AppTest) -> str:
    """Return all that a page says: its texts, messages, metrics, commands and the cells of its tables."""
    kinds = ("title", "subheader", "text", "code", "error", "warning", "info", "caption", "markdown")
    elements: list[Any] = [one for kind in kinds for one in tested.get(kind)]
    said = [str(one.value) for one in elements]
    said += [f"{one.label} {one.value}" for one in tested.metric]
    links = [f"{one.proto.label} {one.proto.page} {one.proto.query_string}" for one in tested.get("page_link")]
    return "\n".join([*said, *links, *(one.value.to_csv(index=False) for one in tested.dataframe)])
