"""Snippets for other engines. Those of engines that run here are run in tests/integration/test_any_engine.py."""

from __future__ import annotations

import ast
import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from lakegate.config import CatalogSettings, S3Settings, StorageSettings
from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.snippets import ENGINES, RUN_HERE
from lakegate.snippets.snippet import write_snippet
from lakegate.snippets.target import SnippetTarget, python_literal

HASH = "1a2b3c4d5e6f" + "0" * 52
TABLE = "s3://lake/wh/nyc/trips_01"
S3 = StorageSettings(s3=S3Settings(endpoint="http://store:9000", region="eu-west-1", path_style=True))


def target(ref: Ref | None = None, **changes: Any) -> SnippetTarget:
    known = ref or Ref(name="main", hash=HASH)
    pinned = {"ref.hash": known.hash} if known.kind == "detached" else {}
    options = {"type": "nessie", "uri": "https://nessie:19120/api/v2", "ref": known.name, **pinned}
    made = SnippetTarget(
        table=TableIdentifier.parse("nyc.trips"),
        ref=known,
        metadata_location=f"{TABLE}/metadata/00008-f56d.metadata.json",
        location=TABLE,
        has_deletes=False,
        warehouse="s3://lake/wh",
        storage=S3,
        catalog=CatalogSettings(uri="https://nessie:19120/api/v2", token="env:LAKE_TOKEN"),
        spark_options=options,
    )
    return replace(made, **changes)


TAG = Ref(name="2026-q1", hash=HASH, kind="tag")
COMMIT = Ref(name="main", hash=HASH, kind="detached")
LOCAL: dict[str, Any] = {
    "metadata_location": "file:/lake/it's/nyc/trips_01/metadata/00008-f56d.metadata.json",
    "location": "file:/lake/it's/nyc/trips_01",
    "warehouse": "file:///lake/it's",
    "storage": StorageSettings(),
}

GOLDEN = {
    "trino": """
# nyc.trips of main at 1a2b3c4d5e6f; later publishes show too.
# etc/catalog/lake.properties:
connector.name=iceberg
iceberg.catalog.type=nessie
iceberg.nessie-catalog.uri=https://nessie:19120/api/v2
iceberg.nessie-catalog.ref=main
iceberg.nessie-catalog.default-warehouse-dir=s3://lake/wh
iceberg.nessie-catalog.authentication.type=BEARER
iceberg.nessie-catalog.authentication.token=${ENV:LAKE_TOKEN}
# Credentials: from AWS's variables, profile or role.
fs.native-s3.enabled=true
s3.region=eu-west-1
s3.endpoint=http://store:9000
s3.path-style-access=true

-- Then, in a Trino client:
SELECT * FROM lake."nyc"."trips" LIMIT 10;
""",
    "dremio": """
-- nyc.trips of main at 1a2b3c4d5e6f; later publishes show too.
-- Once: add a source of type Nessie, named lake, with the endpoint https://nessie:19120/api/v2
-- Credentials: in the settings of the source, for Nessie and for the files.
SELECT * FROM lake."nyc"."trips" AT BRANCH "main" LIMIT 10;
""",
    "snowflake": """
-- nyc.trips of main at 1a2b3c4d5e6f. Later publishes don't show: print it again, or use lakegate serve.
-- A downstream of type snowflake refreshes it after each publish: docs/how-to/read-from-snowflake.md
-- The external volume lakegate must point at s3://lake/wh/. It uses its own role: no secret is needed.
CREATE CATALOG INTEGRATION IF NOT EXISTS lakegate_files
  CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = ICEBERG ENABLED = TRUE;
CREATE DATABASE IF NOT EXISTS "LAKE";
CREATE SCHEMA IF NOT EXISTS "LAKE"."nyc";
CREATE ICEBERG TABLE IF NOT EXISTS "LAKE"."nyc"."trips"
  EXTERNAL_VOLUME = 'lakegate' CATALOG = 'lakegate_files'
  METADATA_FILE_PATH = 'nyc/trips_01/metadata/00008-f56d.metadata.json';
SELECT * FROM "LAKE"."nyc"."trips" LIMIT 10;
""",
    "redshift": """
-- nyc.trips of main at 1a2b3c4d5e6f. Later publishes don't show: print it again, or use lakegate serve.
-- The table must be in Glue: lakegate table connect --engine athena prints how.
-- Credentials: the cluster's default IAM role, with permission to read Glue and the bucket.
CREATE EXTERNAL SCHEMA IF NOT EXISTS "nyc"
FROM DATA CATALOG DATABASE 'nyc' IAM_ROLE default;
SELECT * FROM "nyc"."trips" LIMIT 10;
""",
    "clickhouse": """
-- nyc.trips of main at 1a2b3c4d5e6f. Later publishes don't show: print it again, or use lakegate serve.
-- Credentials: from the server's own environment, or as arguments: IcebergS3(url, key, secret).
CREATE OR REPLACE TABLE "trips"
ENGINE = IcebergS3('http://store:9000/lake/wh/nyc/trips_01/')
SETTINGS iceberg_metadata_file_path = 'metadata/00008-f56d.metadata.json';
SELECT * FROM "trips" LIMIT 10;
""",
}


@pytest.mark.parametrize("engine", GOLDEN)
def test_snippets_of_engines_that_are_not_here(engine: str) -> None:
    snippet = write_snippet(engine, target())
    assert snippet.text == GOLDEN[engine].strip("\n")
    assert snippet.run_here == (engine == "trino")


def test_athena_gets_the_table_by_glue() -> None:
    lines = write_snippet("athena", target()).text.splitlines()
    words = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert [word[:3] for word in words] == [
        ["aws", "glue", "create-database"],
        ["aws", "glue", "create-table"],
        ["aws", "athena", "start-query-execution"],
    ]
    made = json.loads(words[1][-1])
    assert made["Parameters"] == {
        "table_type": "ICEBERG",
        "metadata_location": f"{TABLE}/metadata/00008-f56d.metadata.json",
    }


@pytest.mark.parametrize("engine", ["duckdb", "snowflake", "redshift", "clickhouse", "trino"])
def test_sql_is_sql(engine: str) -> None:
    text = write_snippet(engine, target(**LOCAL) if engine in {"duckdb", "clickhouse"} else target()).text
    sql = text.rpartition("\n\n")[2] if engine == "trino" else text
    statements = [one for one in sqlglot.parse(sql, dialect=engine) if one is not None]
    assert isinstance(statements[-1], exp.Select)
    table = statements[-1].find(exp.Table)
    assert table is not None
    assert table.name == "trips"


@pytest.mark.parametrize("engine", sorted(RUN_HERE - {"duckdb", "trino"}))
@pytest.mark.parametrize("rest", [None, "http://127.0.0.1:8181"])
def test_python_is_python_and_settings_reach_it(engine: str, rest: str | None) -> None:
    text = write_snippet(engine, target(), rest=rest, has_token=True).text
    tree = ast.parse(text)
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {"http://store:9000", "eu-west-1"} <= texts
    assert ("LAKE_READER_TOKEN" in texts) == (rest is not None)


@pytest.mark.parametrize(
    ("ref", "state"),
    [
        (TAG, {"dremio": 'AT TAG "2026-q1"', "trino": "ref=2026-q1", "duckdb": "of 2026-q1 at 1a2b3c4d5e6f. It never"}),
        (COMMIT, {"dremio": f'AT COMMIT "{HASH}"', "trino": f"lakegate tag create at-1a2b3c4d5e6f --from {HASH}"}),
        (COMMIT, {"spark": f'"spark.sql.catalog.lake.ref.hash", "{HASH}"', "duckdb": "of commit 1a2b3c4d5e6f."}),
    ],
)
def test_a_tag_and_a_commit_are_named(ref: Ref, state: dict[str, str]) -> None:
    for engine, part in state.items():
        snippet = write_snippet(engine, target(ref))
        assert part in snippet.text
        assert not snippet.follows


@pytest.mark.parametrize(("ref", "name"), [(None, "main"), (TAG, "tag:2026-q1"), (COMMIT, f"commit:{HASH}")])
def test_a_server_is_asked_for_the_state(ref: Ref | None, name: str) -> None:
    for engine in ("duckdb", "pyiceberg", "polars", "daft", "spark", "trino"):
        snippet = write_snippet(engine, target(ref), rest="http://127.0.0.1:8181/")
        assert name in snippet.text
        assert "8181/" not in snippet.text
        assert snippet.follows == (ref is None)


def test_trino_finds_nested_namespaces_and_capital_letters_by_the_server() -> None:
    found = {}
    for table in ("nyc.trips", "nyc.eu.trips", "nyc.Trips"):
        text = write_snippet("trino", target(table=TableIdentifier.parse(table)), rest="http://127.0.0.1:8181").text
        found[table] = ("nested-namespace-enabled=true" in text, "case-insensitive-name-matching=true" in text)
    assert found == {"nyc.trips": (False, False), "nyc.eu.trips": (True, False), "nyc.Trips": (False, True)}


def test_no_snippet_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LAKE_TOKEN", "AWS_SECRET_ACCESS_KEY", "LAKE_READER_TOKEN"):
        monkeypatch.setenv(variable, "s3cret")
    for engine in ENGINES:
        text = write_snippet(engine, target()).text
        assert "s3cret" not in text
        assert "redentials" in text or engine in {"spark", "trino", "snowflake"}


def test_names_and_paths_stay_what_they_are() -> None:
    for engine in ("duckdb", "clickhouse"):
        assert "/it''s/" in write_snippet(engine, target(**LOCAL)).text
    odd = target(table=TableIdentifier.parse("nyc.class"), **LOCAL)
    ast.parse(write_snippet("pyiceberg", odd).text)
    path = "file:///lake/\U0001f600 é/it's.json"
    assert ast.literal_eval(python_literal(path)) == path
    hostile = target(metadata_location="file:///lake/x\n);DROP TABLE t;--.json")
    with pytest.raises(InputError, match="unprintable"):
        write_snippet("duckdb", hostile)


def test_daft_gets_rows_from_pyiceberg_when_some_are_deleted() -> None:
    assert "daft.from_arrow(" in write_snippet("daft", target(has_deletes=True)).text
    assert "daft.read_iceberg(" in write_snippet("daft", target()).text


@pytest.mark.parametrize(
    ("engine", "changes", "options", "says"),
    [
        ("dukdb", {}, {}, "Unknown engine 'dukdb'"),
        ("snowflake", LOCAL, {}, "Snowflake can't read the files of nyc.trips, which are on this machine"),
        ("athena", LOCAL, {}, "Athena can't read"),
        ("redshift", LOCAL, {}, "Redshift can't read"),
        ("snowflake", {}, {"rest": "http://x"}, "no snippet for Snowflake to read through lakegate serve"),
        ("duckdb", {}, {"rest": "ftp://x"}, "must be a URL"),
        ("duckdb", {}, {"rest": "http://user:secret@x"}, "must be a URL"),
        ("duckdb", {}, {"rest": "http://x/'; DROP"}, "must be a URL"),
        ("duckdb", {"ref": Ref(name="wap/x", hash=HASH)}, {"rest": "http://x"}, "but not branch 'wap/x'"),
        (
            "duckdb",
            {"table": TableIdentifier.parse("nyc.trips__quarantine")},
            {"rest": "http://x"},
            "doesn't serve nyc.trips__quarantine: its rows failed a check",
        ),
        ("spark", {"catalog": CatalogSettings(type="mine")}, {}, "the catalog is of type 'mine'"),
        (
            "trino",
            {"table": TableIdentifier.parse("nyc.eu.trips")},
            {},
            "Trino can't find nyc.eu.trips: it has a nested namespace",
        ),
        (
            "trino",
            {"table": TableIdentifier.parse("nyc.Trips")},
            {},
            "Trino can't find nyc.Trips: it has a nested namespace or capital letters",
        ),
    ],
)
def test_what_cannot_work_is_said(engine: str, changes: Any, options: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        write_snippet(engine, target(**changes), **options)
    assert caught.value.hint
    assert "secret" not in str(caught.value)
