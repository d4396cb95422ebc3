"""Trino writes through the gate, with what ``lakegate gate connect`` prints, and what it wrote is published at once.

It writes to two branches of tables on an S3 server: with keys of its own, and with keys that the gate lends it, when it
has none that are valid. Until a branch is sealed, ``main`` is as it was; then both engines must say the same of each
table. What would publish a view, move files or delete them is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from lakegate.components import local_stack
from lakegate.config import load_settings
from lakegate.gate.connect import writer_snippet
from lakegate.lake import Lake, connect
from lakegate.progress import SilentNarrator
from proofs.result import ProofResult
from support.s3_server import REGION, WRITER_ROLE, S3Server
from support.served_lake import serving
from support.trino import VERSION, Trino, TrinoError, trino

PUBLISHED = "trino_raw.trips"
WAYS = ("own", "lent")
_ROWS = pa.table({"id": pa.array(range(6), pa.int64()), "zone": ["a", "b", "c", "d", "e", None]})
_STATEMENTS = (
    "CREATE SCHEMA {way}.by_{way}",
    """CREATE TABLE {way}.by_{way}.t (id bigint, name varchar, n integer, at timestamp(6), amount decimal(10, 2))
    WITH (partitioning = ARRAY['bucket(id, 4)'])""",
    """INSERT INTO {way}.by_{way}.t SELECT id, 'n' || cast(id AS varchar), 1, timestamp '2026-01-02 03:04:05.678', 1.5
    FROM UNNEST(sequence(1, 100)) AS s(id)""",
    "UPDATE {way}.by_{way}.t SET name = 'z' WHERE id = 1",
    "DELETE FROM {way}.by_{way}.t WHERE id > 50",
    """MERGE INTO {way}.by_{way}.t t USING (VALUES (2, 'm'), (3, NULL), (900, 'new')) s(id, name) ON t.id = s.id
    WHEN MATCHED AND s.name IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)""",
    "ALTER TABLE {way}.by_{way}.t ADD COLUMN extra double",
    "ALTER TABLE {way}.by_{way}.t RENAME COLUMN name TO label",
    "ALTER TABLE {way}.by_{way}.t DROP COLUMN at",
    "ALTER TABLE {way}.by_{way}.t ALTER COLUMN n SET DATA TYPE bigint",
    "ALTER TABLE {way}.by_{way}.t SET PROPERTIES partitioning = ARRAY['n']",
    "COMMENT ON TABLE {way}.by_{way}.t IS 'by Trino'",
    "INSERT INTO {way}.by_{way}.t (id, label, n, extra) VALUES (901, 'after', 3000000000, 0.5)",
    "ALTER TABLE {way}.by_{way}.t EXECUTE optimize",
    "CREATE TABLE {way}.by_{way}.copy AS SELECT id, label FROM {way}.by_{way}.t",
    "CREATE OR REPLACE TABLE {way}.by_{way}.copy AS SELECT zone, count(*) n FROM {way}.trino_raw.trips GROUP BY zone",
    "CREATE TABLE {way}.by_{way}.second AS SELECT 1 AS id",
    "ALTER TABLE {way}.by_{way}.second RENAME TO {way}.by_{way}.renamed",
    "CREATE TABLE {way}.by_{way}.gone (id integer)",
    "DROP TABLE {way}.by_{way}.gone",
    "INSERT INTO {way}.trino_raw.trips VALUES (100, '{way}')",
)
_REFUSED = (
    "CREATE VIEW {way}.by_{way}.v AS SELECT 1 AS id",
    "CREATE MATERIALIZED VIEW {way}.by_{way}.m AS SELECT * FROM {way}.by_{way}.t",
    "CREATE TABLE {way}.by_{way}.far (id integer) WITH (location = 's3://elsewhere/far')",
    "ALTER TABLE {way}.trino_raw.trips RENAME TO {way}.trino_raw.mine",
    "CALL {way}.system.register_table('by_{way}', 'again', 's3://elsewhere/far')",
)
_DELETING = (
    "ALTER TABLE {way}.trino_raw.trips EXECUTE remove_orphan_files(retention_threshold => '0s')",
    "ALTER TABLE {way}.trino_raw.trips EXECUTE expire_snapshots(retention_threshold => '0s')",
)
"""Trino asks nobody before it deletes files: only its keys stop it."""


def prove(home: Path, *, tell: Callable[[str], object] = lambda _: None) -> ProofResult:
    """Let Trino write to two branches of a lake of its own, and publish both."""
    folder, server = home / "trino-writes", S3Server()
    folder.mkdir()
    with ExitStack() as opened:
        opened.callback(server.remove)
        server.start()
        given = {**server.credentials, "AWS_ENDPOINT_URL": server.endpoint}
        opened.enter_context(mock.patch.dict(os.environ, given))
        settings = server.settings(f"{server.new_bucket().uri}/lake") + f'writer_role = "{WRITER_ROLE}"\n'
        (folder / "lakegate.toml").write_text(settings, encoding="utf-8")
        opened.callback(lambda: local_stack(folder, load_settings(folder), SilentNarrator()).down())
        lake = opened.enter_context(closing(connect(folder)))
        with lake.transaction() as tx:
            tx.append(PUBLISHED, _ROWS)
        tell("Published. Trino is started, and fetched if need be")
        url = opened.enter_context(serving(folder)).url
        branches = {way: lake.gate.open(way, checks={f"by_{way}.t": ["unique(id)"]}) for way in WAYS}
        files = {way: _catalog(server, way, url, one.branch) for way, one in branches.items()}
        tokens = {_variable(way): one.token for way, one in branches.items()}
        engine = opened.enter_context(trino(folder / "engine", files, **tokens))
        failures = list(_failures(lake, engine, {way: one.branch for way, one in branches.items()}))
    cases = len(WAYS) * (len(_STATEMENTS) + len(_REFUSED)) + len(_DELETING)
    return ProofResult("trino-writes", cases, failures, f"Trino {VERSION}, with keys of its own and with lent ones")


def _variable(way: str) -> str:
    return f"LAKEGATE_GATE_TOKEN_{way.upper()}"


def _catalog(server: S3Server, way: str, url: str, branch: str) -> str:
    """Return a catalog's file. What doesn't use the keys that it's lent has none that are valid."""
    keys = {"s3.aws-access-key": server.access_key, "s3.aws-secret-key": server.secret_key}
    lent = {
        "iceberg.rest-catalog.vended-credentials-enabled": "true",
        "iceberg.remove-orphan-files.min-retention": "0s",
        "iceberg.expire-snapshots.min-retention": "0s",
        **dict.fromkeys(keys, "invalid"),
    }
    more = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": server.endpoint,
        "s3.region": REGION,
        "s3.path-style-access": "true",
        **(lent if way == "lent" else keys),
    }
    printed = writer_snippet("trino", url, branch).replace("LAKEGATE_GATE_TOKEN", _variable(way))
    return "\n".join([printed, *(f"{key}={value}" for key, value in more.items()), ""])


def _failures(lake: Lake, engine: Trino, branches: Mapping[str, str]) -> Iterator[str]:
    """Write to all branches, and publish each."""
    before = _head(lake)
    for way in branches:
        for statement in _STATEMENTS:
            try:
                engine.ask(statement.format(way=way))
            except TrinoError as error:
                yield f"{way}: {statement}: {error}"
                return
    for way in branches:
        for statement in (*_REFUSED, *(_DELETING if way == "lent" else ())):
            try:
                engine.ask(statement.format(way=way))
            except TrinoError:
                continue
            yield f"{way}: went through: {statement}"
    if _head(lake) != before:
        yield "main changed before a branch was sealed"
    for way, branch in branches.items():
        yield from (f"{way}: {one}" for one in _published(lake, engine, way, branch))
    expected = [*_ROWS.to_pylist(), *({"id": 100, "zone": way} for way in branches)]
    if _rows(lake, PUBLISHED) != _sorted(expected):
        yield f"{PUBLISHED}: {_rows(lake, PUBLISHED)}"


def _published(lake: Lake, engine: Trino, way: str, branch: str) -> Iterator[str]:
    before, tables = _head(lake), [f"by_{way}.{name}" for name in ("t", "copy", "renamed")]
    seen = {table: _seen(engine, f"{way}.{table}") for table in tables}
    run = lake.gate.seal(branch)
    if run.status != "published" or set(run.tables) != {*tables, PUBLISHED}:
        yield f"run {run.run_id} is {run.status}: {run.tables}, {run.error}"
        return
    if [commit.hash for commit in lake.log(limit=2)][1] != before:
        yield "more than one commit"
    for table, rows in seen.items():
        if _rows(lake, table) != rows:
            yield f"{table}: {_rows(lake, table)} is published; Trino read {rows}"


def _seen(engine: Trino, table: str) -> list[Any]:
    names, rows = engine.ask(f"SELECT * FROM {table}")
    return _sorted(dict(zip(names, row, strict=True)) for row in rows)


def _rows(lake: Lake, table: str) -> list[Any]:
    return _sorted(lake.query(f"SELECT * FROM {table}").to_arrow().to_pylist())


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return rows in an order, each value as a text: Trino's JSON has decimals as such."""
    plain = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=repr)


def _head(lake: Lake) -> str:
    return next(iter(lake.log(limit=1))).hash
