"""What Prefect's pages show of a flow run, in a real browser.

The pictures in the docs are made by the same steps: ``LAKEGATE_PICTURES=docs/images`` says where they go.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakegate.local.state import StackState
from support.browser import CHROMIUM, chromium
from support.e2e_support import write_trips
from support.prefect_server import PrefectServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("prefect"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

TABLE = "nyc.yellow_trips"
_SHOWN_MS = 60_000


@pytest.fixture
def server(prefect_server: PrefectServer) -> PrefectServer:
    return prefect_server


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.set_default_timeout(_SHOWN_MS)
        yield opened


@pytest.fixture
def rejected(server: PrefectServer, home: Path, stack: StackState, tmp_path: Path) -> str:
    """The flow run of a batch that was rejected."""
    path = write_trips(tmp_path / "trips.parquet", 1000, nulls=12)
    done = server.run(
        home,
        *("--table_name", TABLE, "--s3_path", path, "-o", "json"),
        *("--check", "not_null(passengers)", "--check", "in_range(passengers, 0, 4, severity='warn')"),
        *("--check", "unique(id)"),
    )
    assert done.returncode == 1, done.stderr
    flow_run_id = str(json.loads(done.stdout)["flow_run_id"])
    server.wait_until(lambda: len(server.task_states(flow_run_id)) == 2, what="the tasks")
    return flow_run_id


def test_the_flow_run_its_tasks_and_its_report_are_shown(server: PrefectServer, page: Page, rejected: str) -> None:
    page.goto(f"{server.url}/runs/flow-run/{rejected}")
    page.get_by_text("lakegate-wap").first.wait_for()
    page.get_by_text("Rejected").first.wait_for()
    page.get_by_text(TABLE).first.wait_for()
    page.get_by_text("Task Runs", exact=True).first.click()
    for task in ("write", "audit"):
        page.get_by_text(f"{task}-").first.wait_for()
    for state in ("RolledBack", "Failed"):
        page.get_by_text(state).first.wait_for()
    _picture(page, "prefect-flow-run.png")

    asked = {
        "flow_runs": {"id": {"any_": [rejected]}},
        "artifacts": {"key": {"any_": ["lakegate-nyc-yellow-trips-audit"]}},
    }
    (artifact,) = server.post("artifacts/filter", asked)
    page.goto(f"{server.url}/artifacts/artifact/{artifact['id']}")
    page.get_by_role("heading", name=f"Audit of {TABLE}: failed").wait_for()
    page.get_by_text("not_null(passengers)").first.wait_for()
    page.get_by_role("cell", name="✗ fail").wait_for()
    page.get_by_text(f"lakegate runs prefect-{rejected}").first.wait_for()
    _picture(page, "prefect-artifact.png")


def _picture(page: Page, name: str) -> None:
    folder = os.environ.get("LAKEGATE_PICTURES")
    if folder:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=Path(folder) / name)
