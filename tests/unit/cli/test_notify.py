"""``lakegate admin notify``, its settings, and the alerts that `lakegate runs` shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import load_settings
from lakegate.errors import ConfigurationError
from lakegate.lake import connect
from lakegate.model.downstream import LateTable
from lakegate.model.run import Notification
from support.cli_support import REJECTED, FakeLake, invoke

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
SENT = Notification(channel="ops", event="rejected", outcome="sent", at=NOW)
FAILED = Notification(channel="mail", event="rejected", outcome="failed", reason="it answered 500", at=NOW)
CHANNELS = """
[[notify.channels]]
name = "ops"
type = "slack"
url = "env:TEST_HOOK_URL"
tables = ["nyc.*"]

[[notify.channels]]
name = "bot"
type = "slack"
token = "env:TEST_BOT_TOKEN"
channel = "#data"
events = ["rejected", "late"]
severity = "error"
"""


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("TEST_BOT_TOKEN", raising=False)
    monkeypatch.setenv("TEST_HOOK_URL", "http://127.0.0.1:9/verysecretpath")
    (tmp_path / "lakegate.toml").write_text(CHANNELS, encoding="utf-8")


# commands -------------------------------------------------------------------------------------------------------------


def test_list_shows_channels_and_which_secrets_are_missing() -> None:
    text = invoke("admin notify list").stdout
    for part in ("ops", "nyc.*", "TEST_HOOK_URL (set)", "TEST_BOT_TOKEN (not set)", "rejected, late"):
        assert part in text
    told = json.loads(invoke("admin notify list -o json").stdout)
    assert [(one["name"], one["missing"]) for one in told] == [("ops", []), ("bot", ["TEST_BOT_TOKEN"])]
    assert "verysecretpath" not in text + json.dumps(told) + invoke("admin config show").stdout


def test_a_test_shows_the_response() -> None:
    lake = FakeLake(alerts_test=[SENT])
    outcome = invoke("admin notify test ops", lake)
    assert (outcome.exit_code, lake.calls) == (0, [("alerts_test", ("ops",), {})])
    assert "sent" in outcome.stdout
    failed = invoke("admin notify test", FakeLake(alerts_test=[SENT, FAILED]))
    assert failed.exit_code == 3
    assert "it answered 500" in failed.stdout
    told = json.loads(invoke("admin notify test -o json", FakeLake(alerts_test=[FAILED])).stdout)
    assert told == [{**FAILED.model_dump(mode="json")}]


def test_late_tables_are_shown_with_their_alerts() -> None:
    late = LateTable(table="nyc.trips", expected_every="1d", last=NOW, run_id="r1", notifications=(SENT,))
    outcome = invoke("admin notify late", FakeLake(alerts_late=[late]))
    assert outcome.exit_code == 0
    for part in ("nyc.trips", "1d", "2026-01-31T07:05:09Z", "r1", "ops: sent"):
        assert part in outcome.stdout
    untold = late.model_copy(update={"notifications": (FAILED,), "last": None, "run_id": None})
    failed = invoke("admin notify late", FakeLake(alerts_late=[untold]))
    assert (failed.exit_code, "never" in failed.stdout) == (3, True)
    assert "'mail' didn't get the alert for nyc.trips: it answered 500" in failed.stderr
    none = invoke("admin notify late", FakeLake(alerts_late=[]))
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "No table is late.\n")
    assert json.loads(invoke("admin notify late -o json", FakeLake(alerts_late=[late])).stdout)[0]["run_id"] == "r1"


def test_a_run_shows_its_alerts() -> None:
    run = REJECTED.model_copy(update={"notifications": (SENT, FAILED)})
    text = invoke("runs 2026", FakeLake(run=run)).stdout
    for part in ("ops", "sent", "mail", "failed", "it answered 500"):
        assert part in text
    told = json.loads(invoke("runs 2026 -o json", FakeLake(run=run)).stdout)
    assert [one["outcome"] for one in told["notifications"]] == ["sent", "failed"]
    assert "told of" not in invoke("runs 2026", FakeLake(run=REJECTED)).stdout


# the lake -------------------------------------------------------------------------------------------------------------


def test_the_lake_alerts_on_late_tables_without_starting_anything(tmp_path: Path) -> None:
    (tmp_path / "lakegate.toml").write_text(f'[notify.late]\n"nyc.trips" = "1d"\n{CHANNELS}', encoding="utf-8")
    with connect(tmp_path) as lake:
        (late,) = lake.alerts.late()
        assert [(one.channel, one.outcome) for one in late.notifications] == [("ops", "failed"), ("bot", "failed")]
        (again,) = lake.alerts.late()
        assert [(one.channel, one.outcome) for one in again.notifications] == [("ops", "grouped"), ("bot", "grouped")]
    assert sorted(path.name for path in (tmp_path / ".lakegate").iterdir() if path.is_dir()) == ["locks"]


def test_no_traceback_shows_the_address_of_a_webhook(tmp_path: Path) -> None:
    places = ("http://127.0.0.1:9/verysecretpath", "http://[verysecretpath", "verysecretpath\n://x")
    channels = (
        f"[[notify.channels]]\nname = '{kind}{number}'\ntype = '{kind}'\nurl = 'env:TEST_HOOK_URL_{number}'\n"
        for number in range(len(places))
        for kind in ("slack", "apprise")
    )
    (tmp_path / "lakegate.toml").write_text("".join(channels), encoding="utf-8")
    words = [
        sys.executable,
        "-m",
        "lakegate",
        "--debug",
        "--log-format",
        "json",
        "admin",
        "notify",
        "test",
        "-o",
        "json",
    ]
    hooks = {f"TEST_HOOK_URL_{number}": place for number, place in enumerate(places)}
    environment = {**os.environ, **hooks, "PYTHONWARNINGS": "default"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, [one["outcome"] for one in json.loads(done.stdout)]) == (3, ["failed"] * 6)
    assert "verysecretpath" not in done.stdout + done.stderr


# settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'a'\ntype = 'slack'\nurl = 'https://hooks.slack.com/services/hunter22'", ["url", "env:NAME_OF"]),
        ("name = 'a'\ntype = 'slack'", ["either 'url'"]),
        ("name = 'a'\ntype = 'slack'\nurl = 'env:A'\ntoken = 'env:B'\nchannel = 'c'", ["either 'url'"]),
        ("name = 'a'\ntype = 'slack'\ntoken = 'env:B'", ["set together"]),
        ("name = 'a'\ntype = 'apprise'", ["needs 'url'"]),
        ("name = 'a'\ntype = 'apprise'\nurl = 'env:A'\ntoken = 'env:B'", ["'token' is for", "'slack'"]),
        ("name = 'a'\ntype = 'pigeon'\nurl = 'env:A'", ["notify.channels.0.type"]),
        ("name = 'a b'\ntype = 'apprise'\nurl = 'env:A'", ["letters, digits"]),
        ("name = 'a'\ntype = 'apprise'\nurk = 'env:A'", ["unknown key 'notify.channels.0.urk'", "did you mean 'url'"]),
        ("name = 'a'\ntype = 'apprise'\nurl = 'env:A'\nevents = ['never']", ["events"]),
    ],
)
def test_an_invalid_channel_is_reported_without_its_secrets(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "lakegate.toml").write_text(f"[[notify.channels]]\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, env={})
    for word in words:
        assert word in caught.value.message
    assert "hunter22" not in caught.value.message


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"group": "soon"}, "Invalid duration"),
        ({"late": {"nyc.trips": "0s"}}, "greater than zero"),
        ({"late": {"nyc;trips": "1d"}}, "nyc;trips"),
        ({"report_url": "javascript:{run_id}"}, "must be a URL"),
        ({"report_url": "https://x/{secret}"}, "must be a URL"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"channels": "[{]"}, "must be JSON"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, settings: dict[str, Any], word: str) -> None:
    flags = {f"notify.{name}": value for name, value in settings.items()}
    (tmp_path / "lakegate.toml").write_text("", encoding="utf-8")
    with pytest.raises(Exception, match=word):
        load_settings(tmp_path, env={}, flags=flags)
