"""``lakegate serve`` before it serves: its errors and its first output."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.components import Components
from lakegate.gate import server
from lakegate.testing.memory import MemoryCatalog

TOKEN = "s3cret-of-readers"


@pytest.fixture
def served(in_a_project: Path, monkeypatch: pytest.MonkeyPatch) -> list[server.ListenAddress]:
    """Record the address, and end immediately."""
    addresses: list[server.ListenAddress] = []

    def run(app: Any, listening: Any, address: server.ListenAddress) -> None:
        addresses.append(address)
        listening.close()

    monkeypatch.setattr(server, "run", run)
    monkeypatch.setattr(Components, "catalog", MemoryCatalog())
    return addresses


def serve(*words: str) -> Result:
    return CliRunner().invoke(cli, ["serve", *words], obj=App())


def test_it_prints_its_address_and_what_to_paste(served: list[server.ListenAddress]) -> None:
    done = serve("--port", "0")
    assert done.exit_code == 0, done.output
    (address,) = served
    assert address.port
    assert f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{address.url}', AUTHORIZATION_TYPE 'none');" in done.stdout
    assert f'load_catalog("lake", type="rest", uri="{address.url}")' in done.stdout


def test_programs_get_one_line(served: list[server.ListenAddress], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER", TOKEN)
    done = serve("--port", "0", "--host", "0.0.0.0", "--token", "env:READER", "-o", "json")
    assert json.loads(done.stdout) == {"url": served[0].url, "warehouse": "main", "token": True}
    assert "without TLS" in serve("--port", "0", "--host", "0.0.0.0", "--token", "env:READER").stderr


def test_settings_come_from_the_project(served: list[server.ListenAddress], in_a_project: Path) -> None:
    (in_a_project / "lakegate.toml").write_text('[serve]\nhost = "localhost"\nport = 0\n')
    assert serve().exit_code == 0
    assert served[0].host == "localhost"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "0.0.0.0"), "without a token"),
        (("--token", TOKEN), "is a secret"),
        (("--token", "env:NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE, which isn't set"),
        (("--tls-key", "lakegate.toml"), "set together"),
        (("--port", "70000"), "70000"),
    ],
)
def test_invalid_addresses_are_refused_before_anything_starts(
    served: list[server.ListenAddress], in_a_project: Path, words: tuple[str, ...], message: str
) -> None:
    (in_a_project / "lakegate.toml").write_text("")
    done = serve(*words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert TOKEN not in done.output.replace(f"--token {TOKEN}", "")
    assert served == []


def test_a_missing_extra_is_one_line(served: list[server.ListenAddress], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = serve()
    assert done.exit_code == 2
    assert "Serving needs starlette and uvicorn, which aren't installed." in done.stderr
    assert "pip install 'lakegate[serve]'" in done.stderr
