"""``/metrics`` of the dashboard: who may read it, and what happens if the journal can't be read."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from lakegate.config import UiSettings
from lakegate.dashboard.ui.access import Access, Login
from lakegate.dashboard.ui.server import metrics_routes
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import RetryableError
from lakegate.telemetry.metrics import RETRIES, Sample
from support.cli_support import FakeLake

ANSWER = [Sample(RETRIES.name, (), 3.0)]
SETTINGS = UiSettings(user_header="X-User", trusted_proxies=("127.0.0.1",), users=("*@example.com",))


def answer(login: Login, url: str = "http://127.0.0.1/metrics", metrics: Any = ANSWER, **headers: str) -> Any:
    lake: Any = FakeLake(metrics=metrics)
    model: Any = None
    shared = Shared(lake=lake, model=model, access=Access(login=login, settings=SETTINGS))
    client = TestClient(Starlette(routes=metrics_routes(shared)))
    return client.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_a_scraper_on_this_machine_reads_them() -> None:
    said = answer("none")
    assert said.status_code == 200
    assert said.headers["content-type"].startswith("text/plain; version=")
    assert "lakegate_conflict_retries_total 3.0" in said.text


@pytest.mark.parametrize(
    ("login", "url", "user", "status"),
    [
        ("none", "http://evil.example.com/metrics", "", 403),
        ("proxy", "http://lake.example.com/metrics", "prometheus@example.com", 200),
        ("proxy", "http://lake.example.com/metrics", "eve@example.org", 403),
        ("oidc", "http://lake.example.com/metrics", "prometheus@example.com", 404),
    ],
)
def test_others_need_to_be_let_in(login: Login, url: str, user: str, status: int) -> None:
    assert answer(login, url, X_User=user).status_code == status


def test_a_journal_that_is_away_is_no_internal_error() -> None:
    said = answer("none", metrics=RetryableError("The journal can't be reached."))
    assert (said.status_code, said.text) == (503, "The journal can't be reached.\n")
