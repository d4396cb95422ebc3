"""``lakegate status --target``: what users' own catalog can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakegate.cli.main import cli
from support import rest_recorder
from support.rest_recorder import Product, RestRecorder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(properties: str, words: str = "") -> str:
    settings = f'[catalog]\ntype = "iceberg"\nwarehouse = "{Path.cwd().as_uri()}/lake"\n[catalog.properties]\n'
    Path("lakegate.toml").write_text(settings + properties)
    return CliRunner().invoke(cli, ["status", "--target", *words.split()], catch_exceptions=False).output


def test_a_sql_catalog_changes_several_tables_at_one_moment() -> None:
    shown = told('type = "sql"\nuri = "sqlite:///catalog.db"\n')
    assert "catalog.db" in shown
    assert "in one commit for every reader" in shown


def test_what_is_not_promised_on_a_product_is_said(tmp_path: Path) -> None:
    with RestRecorder(rest_recorder.POLARIS, tmp_path) as server:
        shown = " ".join(told(f'type = "rest"\nuri = "{server.uri}"\n').split())
    assert "Apache Polaris" in shown
    assert "not run" in shown
    assert "if one is new, one after the other" in shown


def test_an_unknown_product_is_tried_on_a_scratch_table(tmp_path: Path) -> None:
    with RestRecorder(Product(drops_files=True), tmp_path) as server:
        found = json.loads(told(f'type = "rest"\nuri = "{server.uri}"\n', "-o json"))
    assert (found["product"], found["drop_keeps_files"]) == ("an unknown product", False)
    assert ("DELETE", "/v1/namespaces/lakegate_probe") not in server.requests
    assert [path for method, path in server.requests if method == "DELETE"]


def test_nessie_promises_everything() -> None:
    Path("lakegate.toml").write_text("")
    assert "everything that lakegate promises holds" in CliRunner().invoke(cli, ["status", "--target"]).output
