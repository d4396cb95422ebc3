"""Snippets for other engines. They are run as printed in tests/integration/test_any_engine.py."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from lakegate.config import S3Settings, StorageSettings
from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.snippets import ENGINES, FILES, SERVED, SnippetTarget, write_snippet

HASH = "1a2b3c4d5e6f" + "0" * 52
SERVER = "http://127.0.0.1:8181"
TAG = Ref(name="2026-q1", hash=HASH, kind="tag")
COMMIT = Ref(name="main", hash=HASH, kind="detached")
LOCAL: dict[str, Any] = {
    "metadata_location": "file:/lake/it's/nyc/trips_01/metadata/00008-f56d.metadata.json",
    "warehouse": "file:///lake/it's",
    "storage": StorageSettings(),
}
TRINO = """
# nyc.trips of main at 1a2b3c4d5e6f. Later publishes show, too.
# Credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role.
# etc/catalog/lake.properties:
connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri=http://127.0.0.1:8181
iceberg.rest-catalog.warehouse=main
iceberg.rest-catalog.security=OAUTH2
iceberg.rest-catalog.oauth2.token=${ENV:LAKE_READER_TOKEN}
fs.native-s3.enabled=true
s3.region=eu-west-1
s3.endpoint=http://store:9000
s3.path-style-access=true

-- Then, in a Trino client:
SELECT * FROM lake."nyc"."trips" LIMIT 10;"""


def target(ref: Ref | None = None, **changes: Any) -> SnippetTarget:
    made = SnippetTarget(
        table=TableIdentifier.parse("nyc.trips"),
        ref=ref or Ref(name="main", hash=HASH),
        metadata_location="s3://lake/wh/nyc/trips_01/metadata/00008-f56d.metadata.json",
        warehouse="s3://lake/wh",
        storage=StorageSettings(s3=S3Settings(endpoint="http://store:9000", region="eu-west-1", path_style=True)),
    )
    return replace(made, **changes)


def test_trino_gets_its_catalog_file_and_a_query() -> None:
    assert write_snippet("trino", target(), rest=f"{SERVER}/", has_token=True).text == TRINO.strip("\n")


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"duckdb", "trino"}))
@pytest.mark.parametrize("rest", [None, SERVER])
def test_python_is_python_and_settings_reach_it(engine: str, rest: str | None) -> None:
    if rest is None and engine not in FILES:
        return
    text = write_snippet(engine, target(), rest=rest, has_token=True).text
    texts = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert {"http://store:9000", "eu-west-1"} <= texts
    assert ("LAKE_READER_TOKEN" in texts) == (rest is not None)


@pytest.mark.parametrize("rest", [None, SERVER])
def test_sql_is_sql_and_quotes_paths(rest: str | None) -> None:
    text = write_snippet("duckdb", target(**LOCAL), rest=rest).text
    statements = [one for one in sqlglot.parse(text, dialect="duckdb") if one is not None]
    assert isinstance(statements[-1], exp.Select)
    assert ("/it''s/" in text) == (rest is None)
    assert "ENDPOINT 'store:9000', USE_SSL false" in write_snippet("duckdb", target()).text


@pytest.mark.parametrize(
    ("ref", "state", "name"),
    [
        (None, "main at 1a2b3c4d5e6f", "main"),
        (TAG, "2026-q1 at 1a2b3c4d5e6f. It never changes.", "tag:2026-q1"),
        (COMMIT, "commit 1a2b3c4d5e6f. It never changes.", f"commit:{HASH}"),
    ],
)
def test_the_state_is_named(ref: Ref | None, state: str, name: str) -> None:
    for engine in SERVED:
        snippet = write_snippet(engine, target(ref), rest=SERVER)
        assert state in snippet.text
        assert name in snippet.text
        assert snippet.follows == (ref is None)
    for engine in FILES:
        snippet = write_snippet(engine, target(ref))
        assert state in snippet.text
        assert not snippet.follows


def test_trino_finds_nested_namespaces_and_capital_letters() -> None:
    found = {}
    for table in ("nyc.trips", "nyc.eu.trips", "nyc.Trips"):
        text = write_snippet("trino", target(table=TableIdentifier.parse(table)), rest=SERVER).text
        found[table] = ("nested-namespace-enabled=true" in text, "case-insensitive-name-matching=true" in text)
    assert found == {"nyc.trips": (False, False), "nyc.eu.trips": (True, False), "nyc.Trips": (False, True)}


def test_no_snippet_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_SECRET_ACCESS_KEY", "LAKE_READER_TOKEN"):
        monkeypatch.setenv(variable, "s3cret")
    for engine in ENGINES:
        text = write_snippet(engine, target(), rest=SERVER, has_token=True).text
        assert "s3cret" not in text
        assert "redentials" in text


def test_names_and_paths_stay_what_they_are() -> None:
    odd = target(table=TableIdentifier.parse("nyc.class"), **LOCAL)
    ast.parse(write_snippet("pyiceberg", odd).text)
    path = "file:///lake/\U0001f600 é/it's.json"
    tree = ast.parse(write_snippet("polars", target(metadata_location=path)).text)
    assert path in {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


@pytest.mark.parametrize(
    ("engine", "changes", "rest", "says"),
    [
        ("dukdb", {}, None, "Unknown engine 'dukdb'"),
        ("spark", {}, None, "spark reads tables through a catalog"),
        ("duckdb", {"metadata_location": "file:///lake/x\n);DROP TABLE t;--.json"}, None, "unprintable"),
        ("duckdb", {}, "ftp://x", "must be a URL"),
        ("duckdb", {}, "http://user:secret@x", "must be a URL"),
        ("duckdb", {}, "http://x/'; DROP", "must be a URL"),
        ("duckdb", {"ref": Ref(name="wap/x", hash=HASH)}, "http://x", "but not branch 'wap/x'"),
        ("duckdb", {"table": TableIdentifier.parse("nyc.trips__quarantine")}, "http://x", "its rows failed a check"),
    ],
)
def test_what_cannot_work_is_said(engine: str, changes: Any, rest: str | None, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        write_snippet(engine, target(**changes), rest=rest)
    assert "secret" not in str(caught.value)
