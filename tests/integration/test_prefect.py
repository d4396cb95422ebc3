"""The flows on a real Prefect server, real Spark and a real Nessie, as processes that can be killed.

The pictures of Prefect's pages in the docs are made here: ``LAKEGATE_PICTURES=docs/images`` says where they go.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from lakegate.errors import NotFoundError
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.model.run import Run
from support import warm
from support.browser import CHROMIUM, chromium
from support.e2e_support import write_trips
from support.prefect_server import ENDS_S, IMPATIENT, PrefectServer
from support.tls_proxy import tls_proxy
from support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("prefect")]

_Result = TypeVar("_Result")
_Ending = tuple[str, int, list[str]]
"""A run's status, the rows of its table, the branches that are left."""

_SHOWN_MS = 60_000
NOT_NULL = ("--check", "not_null(passengers)")

BACKFILL = """
import sys
from lakegate.integrations.prefect import backfill_flow

table, paths, times = sys.argv[1:]
checks = ["not_null(passengers)"]
for _ in range(int(times)):
    state = backfill_flow(table, paths, "2024-01-01", "2024-01-03", parallel=2, checks=checks, return_state=True)
    print(state.name)
"""


@pytest.fixture
def server(prefect_server: PrefectServer) -> PrefectServer:
    return prefect_server


@contextmanager
def leaving(server: PrefectServer) -> Iterator[dict[str, str]]:
    """The server at another address, for impatient processes; at the body's end it's as one that is killed."""
    with tls_proxy(int(server.url.rpartition(":")[2]), None) as proxy:
        yield {"PREFECT_API_URL": f"http://127.0.0.1:{proxy.port}/api", **IMPATIENT}


@pytest.fixture
def table(namespace: str, stack: StackState) -> str:
    return f"{namespace}.trips"


def told(done: subprocess.CompletedProcess[str], code: int) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def rows(lake: Lake, table: str) -> int:
    try:
        return lake.table(table).rows or 0
    except NotFoundError:
        return 0


def branches(lake: Lake, table: str) -> list[str]:
    return [ref.name for ref in lake.branches.list() if table in ref.name]


def only_run(lake: Lake, table: str) -> Run:
    (run,) = lake.runs(table=table)
    return run


def stop(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    os.killpg(process.pid, number)
    process.wait(timeout=ENDS_S)


def ingest(path: Path, table: str, *more: str) -> tuple[str, ...]:
    return ("--table_name", table, "--s3_path", str(path), *more)


def test_a_clean_batch_is_published(server: PrefectServer, lake: Lake, table: str, tmp_path: Path) -> None:
    path = write_trips(tmp_path / "a.parquet", 50)
    said = told(server.run(lake.home, *ingest(path, table, *NOT_NULL, "--output", "json")), 0)
    assert said["status"] == "published"
    assert said["run_id"] == f"prefect-{said['flow_run_id']}"
    assert rows(lake, table) == 50
    assert branches(lake, table) == []
    flow_run = server.flow_run(said["flow_run_id"])
    assert (flow_run["state_name"], flow_run["state_type"]) == ("Published", "COMPLETED")
    done = dict.fromkeys(("write", "audit", "publish"), "Completed")
    server.wait_until(lambda: server.task_states(flow_run["id"]) == done, what="the tasks")
    key = f"lakegate-{re.sub('[^a-z0-9]+', '-', table)}"
    assert set(server.artifacts(flow_run["id"])) == {f"{key}-audit"}


def test_a_dirty_batch_is_rejected(server: PrefectServer, lake: Lake, table: str, tmp_path: Path) -> None:
    path = write_trips(tmp_path / "a.parquet", 50, nulls=3)
    done = server.run(lake.home, *ingest(path, table, *NOT_NULL, "--on-failure", "drop"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2].startswith(f"error: The audit of {table} failed, nothing was published.")
    assert "Traceback" not in done.stderr
    run = only_run(lake, table)
    assert (run.status, branches(lake, table), rows(lake, table)) == ("rejected", [], 0)
    flow_run_id = run.run_id.removeprefix("prefect-")
    flow_run = server.flow_run(flow_run_id)
    assert (flow_run["state_name"], flow_run["state_type"]) == ("Rejected", "FAILED")
    assert wait_until(lambda: found if len(found := server.task_states(flow_run_id)) == 2 else None)
    (result,) = json.loads(next(iter(server.artifacts(flow_run_id).values())))
    assert (result["check"], result["verdict"]) == ("not_null(passengers)", "fail")
    assert (result["failing_rows"], result["total_rows"]) == (3, 50)


def side_by_side(run: Callable[[str], _Result], names: Collection[str]) -> dict[str, _Result]:
    """Do several of what takes long to load, some at a time; return by name what each returned."""
    with ThreadPoolExecutor(max_workers=3) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


def test_a_process_that_was_killed_is_settled_by_recover(
    server: PrefectServer, lake: Lake, namespace: str, tmp_path: Path
) -> None:
    undone: _Ending = ("failed", 0, [])
    finished: _Ending = ("published", 20, [])
    # Each also recovers what those before it left, and must not come to its own point in that: the last one comes when
    # the first is gone. What becomes of a run at each of the other points is the crash matrix's.
    becomes = {"after-publish": finished, "after-stage": undone, "before-commit": finished}
    path = write_trips(tmp_path / "a.parquet", 20)

    def table(point: str) -> str:
        return f"{namespace}.{point.replace('-', '_')}"

    def killed(point: str) -> int:
        return server.run(lake.home, *ingest(path, table(point), *NOT_NULL), LAKEGATE_FAULT=f"{point}:kill").returncode

    def stands(point: str) -> _Ending:
        return only_run(lake, table(point)).status, rows(lake, table(point)), branches(lake, table(point))

    *others, last = becomes
    assert side_by_side(killed, others) | {last: killed(last)} == dict.fromkeys(becomes, -signal.SIGKILL)
    lake.recover()
    assert {point: stands(point) for point in becomes} == becomes
    again = {point: lake.ingest(table(point), [path]).status for point in becomes}
    assert again == {point: "skipped" if before == finished else "published" for point, before in becomes.items()}
    assert {rows(lake, table(point)) for point in becomes} == {20}


def test_a_process_that_is_told_to_end_undoes_its_run(
    server: PrefectServer, lake: Lake, table: str, tmp_path: Path
) -> None:
    path = write_trips(tmp_path / "a.parquet", 20)
    process = server.begin(lake.home, *ingest(path, table), LAKEGATE_FAULT="after-stage:pause")
    paused(process)
    os.kill(process.pid, signal.SIGTERM)
    stop(process, signal.SIGCONT)
    assert (only_run(lake, table).status, rows(lake, table), branches(lake, table)) == ("failed", 0, [])


def paused(process: subprocess.Popen[str]) -> None:
    stat = Path(f"/proc/{process.pid}/stat")

    def stopped() -> bool:
        assert process.poll() is None
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"

    wait_until(stopped, within_s=ENDS_S, poll_s=0.2, what="the pause")


def test_a_server_that_goes_away_loses_nothing(
    server: PrefectServer, lake: Lake, namespace: str, tmp_path: Path
) -> None:
    path = write_trips(tmp_path / "a.parquet", 20)
    tables = {point: f"{namespace}.{point}" for point in ("stage", "audit", "publish")}
    processes: list[subprocess.Popen[str]] = []
    try:
        with leaving(server) as variables:
            for point, table in tables.items():
                # One after another: who is impatient takes a server for gone that is only busy with others.
                fault = f"after-{point}:pause"
                processes.append(server.begin(lake.home, *ingest(path, table), LAKEGATE_FAULT=fault, **variables))
                paused(processes[-1])
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)
        assert [process.wait(timeout=ENDS_S) for process in processes] == [4, 4, 4]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    log = (server.folder / "begun.log").read_text(encoding="utf-8")
    assert log.count("error: Prefect's server went away while the flow was running") == 3
    for table in tables.values():
        run = only_run(lake, table)
        assert run.finished_at is not None
        assert rows(lake, table) == (20 if run.status == "published" else 0)
        assert branches(lake, table) == []


def test_without_its_server_nothing_is_begun(server: PrefectServer, lake: Lake, table: str, tmp_path: Path) -> None:
    path = write_trips(tmp_path / "a.parquet", 20)
    with leaving(server) as variables:
        pass
    done = server.run(lake.home, *ingest(path, table), **variables)
    assert done.returncode == 3
    assert f"Prefect's server at {variables['PREFECT_API_URL']} doesn't answer; nothing was started." in done.stderr
    assert lake.runs(table=table) == []


def test_served_it_takes_in_what_is_new_and_what_is_announced(
    server: PrefectServer, lake: Lake, table: str, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    write_trips(landing / "a.parquet", 20)
    write_trips(landing / "b.parquet", 10, nulls=1, start=100)
    # Each flow run is a process that loads everything: the schedule has none begin that the test doesn't wait for.
    serving = ("serve", landing, "--table", table, "--every", "10m", "--name", table, *NOT_NULL)
    process = server.begin(lake.home, *serving)
    try:
        server.wait_until(lambda: server.deployment(f"lakegate-wap/{table}"), what="the deployments")
        intake = f"lakegate-intake/{table}"
        times = server.wait_until(lambda: scheduled(server, intake), what="what the schedule will begin")
        assert times[1] - times[0] == timedelta(minutes=10)
        # As a schedule does that overlaps itself.
        looks = [server.post(create_flow_run(server, intake))["id"] for _ in range(2)]
        states = server.wait_until(lambda: ends(server, looks), what="the end of both")
        assert ("CANCELLED" in states, rows(lake, table)) == (True, 20)
        write_trips(landing / "c.parquet", 5, start=200)
        server.post(create_flow_run(server, intake))
        elsewhere = write_trips(tmp_path / "elsewhere" / "d.parquet", 7, start=300)
        assert server.run(lake.home, "announce", table, elsewhere).returncode == 0
        server.wait_until(lambda: rows(lake, table) == 32, what="the file that came later, and the announced one")
        cancel_in_mid_write(server, lake, table, tmp_path)
        with pytest.raises(httpx.HTTPStatusError, match=r"409|422"):
            server.post(create_flow_run(server, f"lakegate-wap/{table}"), {"parameters": {"table": 5, "path": "x"}})
    finally:
        stop(process, signal.SIGINT)
    published = [run for run in lake.runs(table=table) if run.status == "published"]
    assert sum(run.publication.rows for run in published if run.publication) == rows(lake, table) == 32
    assert len({file.uri for run in published if run.request for file in run.request.batch.files}) == 3


def scheduled(server: PrefectServer, name: str) -> list[datetime] | None:
    """Return when a deployment's schedule will begin flow runs, once Prefect knows of several."""
    deployment = server.deployment(name)
    assert deployment is not None
    only = {"deployments": {"id": {"any_": [deployment["id"]]}}}
    found = [one for one in server.post("flow_runs/filter", only) if one["auto_scheduled"]]
    times = sorted(datetime.fromisoformat(one["expected_start_time"]) for one in found)
    return times if len(times) > 1 else None


def ends(server: PrefectServer, flow_runs: Collection[str]) -> set[str] | None:
    """Return the types of the states that flow runs ended in; ``None`` while one of them goes on."""
    states = {server.flow_run(one)["state_type"] for one in flow_runs}
    return states if states <= {"CANCELLED", "CRASHED", "COMPLETED", "FAILED"} else None


def create_flow_run(server: PrefectServer, name: str) -> str:
    deployment = server.deployment(name)
    assert deployment is not None
    return f"deployments/{deployment['id']}/create_flow_run"


def cancel_in_mid_write(server: PrefectServer, lake: Lake, table: str, tmp_path: Path) -> None:
    big = write_trips(tmp_path / "big" / "0.parquet", 2_000_000, start=1000)
    for copy in range(1, 5):  # so many that Spark is still at it when a busy machine comes to cancel
        big.with_stem(str(copy)).hardlink_to(big)
    parameters = {"parameters": {"table": table, "path": str(big.parent)}}
    flow_run = server.post(create_flow_run(server, f"lakegate-wap/{table}"), parameters)
    branch = f"wap/{table}_prefect-{flow_run['id']}"
    server.wait_until(lambda: branch in branches(lake, table), what="the branch", poll_s=0.2)
    server.post(f"flow_runs/{flow_run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    what = "the end of the cancelled flow run"
    assert server.wait_until(lambda: ends(server, [flow_run["id"]]), what=what) == {"CANCELLED"}
    assert branch not in branches(lake, table)
    assert lake.run(f"prefect-{flow_run['id']}").status == "failed"


def test_a_backfill_that_is_killed_and_has_a_bad_day_goes_on_when_run_again(
    server: PrefectServer, lake: Lake, table: str, tmp_path: Path
) -> None:
    for day, (size, nulls) in {1: (10, 0), 2: (7, 2), 3: (5, 0), 4: (3, 0)}.items():
        write_trips(tmp_path / f"2024-01-0{day}.parquet", size, nulls=nulls, start=100 * day)

    def backfill(*, times: int = 1, **more: str) -> list[str]:
        done = subprocess.run(
            (*warm.python(warm.PREFECT), "-c", BACKFILL, table, f"{tmp_path}/%Y-%m-%d.parquet", str(times)),
            env=server.environment(lake.home, **more),
            cwd=lake.home,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )
        return done.stdout.split() if done.returncode >= 0 else [signal.Signals(-done.returncode).name]

    assert backfill(LAKEGATE_FAULT="after-stage:kill") == ["SIGKILL"]
    assert backfill() == ["Incomplete"]
    assert (rows(lake, table), len(branches(lake, table))) == (15, 1)
    write_trips(tmp_path / "2024-01-02.parquet", 7, start=200)
    runs = len(lake.runs(table=table))
    assert backfill(times=2) == ["Completed", "Completed"]
    assert (rows(lake, table), len(lake.runs(table=table))) == (22, runs + 1)


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.set_default_timeout(_SHOWN_MS)
        yield opened


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_flow_run_its_tasks_and_its_report_are_shown(
    server: PrefectServer, home: Path, stack: StackState, page: Page, tmp_path: Path
) -> None:
    table = "nyc.yellow_trips"
    path = write_trips(tmp_path / "trips.parquet", 1000, nulls=12)
    more = ("--check", "in_range(passengers, 0, 4, severity='warn')", "--check", "unique(id)", "-o", "json")
    rejected = told(server.run(home, *ingest(path, table, *NOT_NULL, *more)), 1)["flow_run_id"]
    wanted = {"write": "RolledBack", "audit": "Failed"}
    server.wait_until(lambda: server.task_states(rejected) == wanted, what="the ends of the tasks")

    page.goto(f"{server.url}/runs/flow-run/{rejected}")
    page.get_by_text("lakegate-wap").first.wait_for()
    page.get_by_text("Rejected").first.wait_for()
    page.get_by_text(table).first.wait_for()
    page.get_by_text("Task Runs", exact=True).first.click()
    for task, state in wanted.items():
        page.get_by_text(f"{task}-").first.wait_for()
        page.get_by_text(state).first.wait_for()
    picture(page, "prefect-flow-run.png")


def picture(page: Page, name: str) -> None:
    folder = os.environ.get("LAKEGATE_PICTURES")
    if folder:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=Path(folder) / name)
