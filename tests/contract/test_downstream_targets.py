"""Every type of downstream system keeps the contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.downstream.command import CommandTarget
from lakegate.downstream.webhook import WebhookTarget
from support.downstream_contract import DownstreamContract
from support.slack_server import slack_server

PATH = "/hooks/hunter2"


class TestWebhook(DownstreamContract):
    @pytest.fixture
    def target(self) -> Iterator[WebhookTarget]:
        with slack_server() as server:
            yield WebhookTarget(server.url + PATH, "hunter2-secret", 10)

    @pytest.fixture
    def away(self) -> WebhookTarget:
        return WebhookTarget(f"http://127.0.0.1:9{PATH}", None, 10)

    @pytest.fixture
    def refusing(self) -> Iterator[WebhookTarget]:
        with slack_server() as server:
            server.odd.extend(["302"] * 3)
            yield WebhookTarget(server.url + PATH, None, 10)


class TestCommand(DownstreamContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> CommandTarget:
        return CommandTarget("dbt", [sys.executable, "-Sc", "pass"], tmp_path, 30)

    @pytest.fixture
    def away(self, tmp_path: Path) -> CommandTarget:
        (tmp_path / "x").touch()
        return CommandTarget("dbt", [sys.executable, "-Sc", "raise SystemExit(1)"], tmp_path / "x" / "y", 30)

    @pytest.fixture
    def refusing(self, tmp_path: Path) -> CommandTarget:
        return CommandTarget("dbt", [sys.executable, "-Sc", "print('hunter2'); raise SystemExit(65)"], tmp_path, 30)
