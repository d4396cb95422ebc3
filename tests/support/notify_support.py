"""Channels of every kind that lead to a stand-in for Slack, and what to tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from lakegate.alerts.dispatch import Dispatcher
from lakegate.config import NotifySettings
from lakegate.journal.journal import Journal
from lakegate.model.downstream import Notice
from lakegate.model.run import FileCheckpoint, Notification, Run
from support.cli_support import REJECTED, make_run
from support.memory_journal import MemoryDatabase
from support.slack_server import TOKEN, SlackServer, slack_server

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
WEBHOOK = {"name": "ops", "type": "slack", "url": "env:HOOK_URL"}
BOT = {"name": "bot", "type": "slack", "token": "env:BOT_TOKEN", "channel": "C42"}
MAIL = {"name": "mail", "type": "apprise", "url": "env:APPRISE_URL"}


@contextmanager
def told_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    """Run the stand-in, with the variables that the channels refer to."""
    with slack_server() as running:
        monkeypatch.setenv("HOOK_URL", running.hook)
        monkeypatch.setenv("BOT_TOKEN", TOKEN)
        monkeypatch.setenv("APPRISE_URL", running.url.replace("http", "json") + "/verysecretpath")
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield running


def channels(server: SlackServer, *given: dict[str, Any], **rules: Any) -> NotifySettings:
    with_address = [one | ({"api_url": f"{server.url}/api/"} if "token" in one else {}) for one in given]
    return NotifySettings.model_validate({"channels": with_address, "timeout_s": 20, **rules})


def dispatcher(settings: NotifySettings, journal: Journal | None = None) -> Dispatcher:
    shared = journal or Journal(MemoryDatabase())
    return Dispatcher(settings, lambda: shared)


def rejection(run: Run = REJECTED) -> Notice:
    assert run.finished_at is not None
    return Notice(event="rejected", severity="error", tables=run.tables, run=run, at=run.finished_at)


def rejected_run(number: int) -> Run:
    return make_run("rejected", run_id=f"r{number:03}", reports=REJECTED.reports, branch_kept=True)


def lost_file(name: str = "bad.parquet", **values: Any) -> FileCheckpoint:
    reason = "bad.parquet is cut off: the last four bytes are not those of a parquet file."
    given = {"uri": f"s3://landing/{name}", "stamp": "1", "outcome": "failed", "tries": 3, "noted_at": NOW}
    return FileCheckpoint.model_validate({**given, "reason": reason, **values})


def given_up(file: FileCheckpoint, table: str = "nyc.trips") -> Notice:
    return Notice(event="given_up", severity="error", tables=(table,), file=file, at=NOW)


def outcomes(told: Sequence[Notification]) -> list[tuple[str, str, str | None]]:
    return [(one.channel, one.outcome, one.reason) for one in told]
