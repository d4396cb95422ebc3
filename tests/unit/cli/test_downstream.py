"""``lakegate admin downstream``: its output, its exit codes, and its errors for names that don't exist."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import JournalSettings
from lakegate.errors import InputError, NotFoundError
from lakegate.journal.factory import open_journal
from lakegate.lake import connect
from lakegate.model.downstream import Delivery, DownstreamCheck, DownstreamStatus, Subscription
from support.cli_support import PUBLISHED, FakeLake, invoke

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
SETTINGS = """
[downstream.hook]
type = "webhook"
url = "env:NO_SUCH_VARIABLE"

[downstream.dbt]
type = "command"
argv = ["true"]
"""
GOOD = DownstreamStatus(name="dbt", type="command", since=NOW, sent=7, last_sent_at=NOW)
BAD = DownstreamStatus(
    name="hook", type="webhook", since=NOW, pending=2, failed=1, oldest=NOW, reason="It answered 403."
)
OLD = DownstreamStatus(name="old", since=NOW, pending=3, oldest=NOW)


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "lakegate.toml").touch()


def delivery(state: str = "sent", **values: Any) -> Delivery:
    given = {"delivery_id": 17, "downstream": "hook", "kind": "published", "ref": "main", "commit": "c" * 64}
    more = {"run_id": "r1", "tables": ("nyc.trips",), "state": state, "tries": 2, "queued_at": NOW}
    return Delivery.model_validate({**given, **more, **values})


FAILED = delivery("failed", reason="It answered 403.")


def test_status_shows_what_is_queued_and_what_to_do() -> None:
    shown = invoke("admin downstream status", FakeLake(downstream_status=[GOOD, BAD, OLD]))
    assert shown.exit_code == 3
    for part in ("dbt", "It answered 403.", "unknown here", "lakegate admin downstream retry hook"):
        assert part in shown.stdout, part
    assert "lakegate admin downstream forget old" in shown.stdout
    calm = invoke("admin downstream status", FakeLake(downstream_status=[GOOD]))
    assert (calm.exit_code, "Next" in calm.stdout) == (0, False)
    assert "No downstream systems." in invoke("admin downstream status", FakeLake(downstream_status=[])).output


def test_status_of_one_shows_its_deliveries() -> None:
    lake = FakeLake(downstream_status=[GOOD, BAD], downstream_deliveries=[FAILED])
    shown = invoke("admin downstream status hook", lake)
    assert ("17" in shown.stdout, "nyc.trips" in shown.stdout, "dbt" in shown.stdout) == (True, True, False)
    payload = json.loads(invoke("admin downstream status hook -o json", lake).stdout)
    assert (payload["failed"], payload["deliveries"][0]["delivery_id"]) == (1, 17)
    missing = invoke("admin downstream status hoook", lake)
    assert missing.exit_code == 2
    assert "'hoook' isn't known" in missing.output


@pytest.mark.parametrize(
    ("command", "method"), [("retry hook", "downstream_retry"), ("send hook nyc.trips", "downstream_send")]
)
def test_unsent_deliveries_decide_the_exit_code(command: str, method: str) -> None:
    waiting = delivery("pending", next_at=NOW, reason="It can't be reached.")
    for tried, code in (([delivery()], 0), ([delivery(), FAILED], 3), ([waiting], 3), ([], 0)):
        shown = invoke(f"admin downstream {command}", FakeLake(**{method: tried}))
        assert shown.exit_code == code
        assert json.loads(invoke(f"admin downstream {command} -o json", FakeLake(**{method: tried})).stdout) == [
            one.model_dump(mode="json") for one in tried
        ]


def test_test_says_what_was_checked() -> None:
    works = DownstreamCheck(name="dbt", type="command", works=True, detail="Found /usr/bin/dbt; it wasn't run.")
    fails = DownstreamCheck(name="hook", type="webhook", works=False, detail="It can't be reached.")
    assert invoke("admin downstream test", FakeLake(downstream_test=[works])).exit_code == 0
    shown = invoke("admin downstream test", FakeLake(downstream_test=[works, fails]))
    assert (shown.exit_code, "It can't be reached." in shown.stdout) == (3, True)


def test_a_run_shows_its_deliveries() -> None:
    lake = FakeLake(run=PUBLISHED, downstream_deliveries=[delivery(), FAILED])
    assert "It answered 403." in invoke("runs 2026", lake).stdout
    assert [one["state"] for one in json.loads(invoke("runs 2026 -o json", lake).stdout)["deliveries"]] == [
        "sent",
        "failed",
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "lakegate.toml").write_text(SETTINGS, encoding="utf-8")
    with closing(open_journal(JournalSettings(), tmp_path)) as journal:
        both = [Subscription(name=name, events=("rejected", "current")) for name in ("hook", "gone")]
        journal.outbox.register(both)
        for name in ("hook", "gone"):
            journal.outbox.send_current(name, ["nyc.trips", "nyc.fares"], ref="main", commit="c" * 64)
    return tmp_path


def test_the_lake_knows_systems_of_the_settings_and_of_the_journal(project: Path) -> None:
    with connect(project) as lake:
        found = {one.name: (one.type, one.pending, one.since is not None) for one in lake.downstream.status()}
        assert found == {
            "dbt": ("command", 0, False), "gone": (None, 1, True), "hook": ("webhook", 1, True),
        }  # fmt: skip
        (skipped,) = lake.downstream.skip("hook", reason="Was done by hand.")
        assert [(one.state, one.reason) for one in lake.downstream.deliveries(downstream="hook")] == [
            ("skipped", "Was done by hand.")
        ]
        with pytest.raises(NotFoundError, match="Nothing is queued for downstream 'hook'"):
            lake.downstream.skip("hook")
        for number in (skipped.delivery_id, 0, -(10**20), 10**20):
            with pytest.raises(NotFoundError, match=f"No delivery {number} is queued"):
                lake.downstream.skip("gone", delivery=number)
        with pytest.raises(InputError, match="is in the settings"):
            lake.downstream.forget("hook")
        assert lake.downstream.forget("gone") == 1


def test_unknown_names_are_errors(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with connect(project) as lake:
        with pytest.raises(NotFoundError, match="Did you mean 'hook'"):
            lake.downstream.retry("hok")
        with pytest.raises(InputError, match="needs no AWS permissions"):
            lake.downstream.policy("dbt")
        by_name = {one.name: one for one in lake.downstream.test()}
        assert by_name["dbt"].works
        assert "NO_SUCH_VARIABLE" in by_name["hook"].detail
    with (
        connect(tmp_path_factory.mktemp("empty")) as lake,
        pytest.raises(NotFoundError, match="No downstream system is configured"),
    ):
        lake.downstream.retry()
