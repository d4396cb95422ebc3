"""A webhook hears of each publish on the real stack, though it is down and the program is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakegate.local.state import StackState
from lakegate.model.downstream import DownstreamEvent
from support.e2e_support import Cli, write_trips
from support.slack_server import SlackServer, slack_server

pytestmark = pytest.mark.jvm


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack_server() as running:
        yield running


def test_a_webhook_hears_of_everything_in_order(
    home: Path, stack: StackState, server: SlackServer, namespace: str, tmp_path: Path
) -> None:
    del stack
    section = {"type": "webhook", "url": "env:TEST_HOOK_URL", "tables": [f"{namespace}.*"]}
    variables = {
        "LAKEGATE_DOWNSTREAM_HOOK": json.dumps(section),
        "TEST_HOOK_URL": f"{server.url}/hook",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    cli = Cli(home, variables)
    table = f"{namespace}.trips"
    files = [write_trips(tmp_path / f"{name}.parquet", 100 * number) for number, name in enumerate("abc", 1)]

    first = cli.json("ingest", table, files[0])
    server.odd.append("500")
    second = cli.json("ingest", table, files[1])  # exits with 0: it is published
    (status,) = cli.json("admin", "downstream", "status")
    assert (status["pending"], status["sent"], status["reason"]) == (1, 1, "It answered 500.")
    killed = Cli(home, {**variables, "LAKEGATE_FAULT": "after-publish:kill"}).run("ingest", table, files[2])
    assert killed.returncode == -9
    third = cli.json("admin", "recover")[0]
    cli.run("admin", "downstream", "retry")
    reverted = cli.json("revert", third["run_id"])

    told = [DownstreamEvent.model_validate_json(one.body) for one in server.received if one.path == "/hook"]
    order = list(dict.fromkeys((event.kind, event.run_id) for event in told))
    runs = [first, second, third]
    assert order == [*(("published", run["run_id"]) for run in runs), ("reverted", reverted["run_id"])]
    for rows, event in zip((100, 300, 600, 300), {event.event_id: event for event in told}.values(), strict=True):
        (changed,) = event.tables
        assert (changed.table, changed.rows) == (table, rows)
        assert StaticTable.from_metadata(str(changed.after)).scan().to_arrow().num_rows == rows
    (delivery,) = cli.json("runs", second["run_id"])["deliveries"]
    assert (delivery["downstream"], delivery["state"]) == ("hook", "sent")
