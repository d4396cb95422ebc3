"""What a page's document shows before any script has run, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from lakegate.config import UiSettings
from lakegate.dashboard.ui import session, shell
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.pages import home
from support.app_pages import share
from support.big_lake import BigLake, big_lake

LOCAL = ("localhost", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    lake = big_lake(tmp_path_factory.mktemp("document"), runs=40, tables=5)
    yield lake
    lake.close()


@pytest.fixture(autouse=True)
def _shown(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shell, "_TABLES_TIMEOUT_S", 60)
    share(made)
    yield
    session.share(None)


def asked(path: str = "/", *, access: Access | None = None, host: str = "localhost:8484", **headers: str) -> Any:
    app = Starlette(routes=shell.documents(access or Access(), LOCAL))
    return TestClient(app, base_url=f"http://{host}").get(path, headers=headers)


def test_home_s_document_has_the_tables_for_nobody_s_cache(made: BigLake) -> None:
    answer = asked()
    for table in made.tables:
        assert f">{table}</bdi>" in answer.text
    assert "<script>alert(1)" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.index('class="lg-first"') < answer.text.index('<div id="root"></div>')


@pytest.mark.parametrize("path", ["/runs", "/?q=trips", "/?needs=true"])
def test_other_documents_have_the_logo_only(made: BigLake, path: str) -> None:
    answer = asked(path)
    assert made.tables[0] not in answer.text
    assert 'class="lg-waiting"' in answer.text


@pytest.mark.parametrize("host", ["evil.example.com", "localhost.evil.example.com:8484"])
def test_a_name_that_somebody_made_to_lead_here_reads_nothing(made: BigLake, host: str) -> None:
    assert made.tables[0] not in asked(host=host).text


def test_who_has_to_log_in_reads_nothing_before(made: BigLake) -> None:
    settings = UiSettings(user_header="X-User", trusted_proxies=("127.0.0.1",), users=("ann",))
    assert made.tables[0] not in asked(access=Access("oidc")).text
    proxied = Access("proxy", settings=settings)
    assert made.tables[0] in asked(access=proxied, **{"X-User": "ann"}).text
    assert made.tables[0] not in asked(access=proxied, **{"X-User": "eve"}).text
    assert made.tables[0] not in asked(access=proxied).text


def test_a_document_waits_for_no_catalog(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = Event()
    monkeypatch.setattr(shell, "_TABLES_TIMEOUT_S", 0.05)
    monkeypatch.setattr(home, "overview", lambda *_, **__: goes_on.wait(60))
    try:
        assert 'class="lg-waiting"' in asked().text
    finally:
        goes_on.set()


def test_what_goes_wrong_is_left_to_the_page(made: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "overview", lambda *_, **__: 1 / 0)
    assert 'class="lg-waiting"' in asked().text
    session.share(None)
    assert 'class="lg-waiting"' in asked().text


def test_scripts_and_style_sheet_wait_until_the_tables_are_painted() -> None:
    tables, logo = asked().text, asked("/runs").text
    module = '<script type="module"'
    for late in (module, '<link rel="stylesheet"'):
        assert logo.count(late) == 1
        assert tables.count(late) == 0
    sheet = logo.partition('<link rel="stylesheet" crossorigin href="')[2].partition('"')[0]
    assert f'["stylesheet", "{sheet}"]' in tables
    assert '"modulepreload"' in tables
    assert '@font-face { font-family: "Source Sans"' in tables
    source = logo.partition(f'{module} crossorigin src="')[2].partition('"')[0]
    assert source.endswith(".js")
    assert f'src: "{source}"' in tables
