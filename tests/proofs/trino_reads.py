"""Trino reads what is published: by ``lakegate serve``, with the snippets of ``lakegate table connect``.

What it says of every column, at ``main``, a tag and a commit, must be what Spark says: counts, NULLs, sums and bounds
of real trips with renamed, added, dropped and widened columns and deleted rows; and each row of a table of all types.
None of its writes may get through the server. The tables are on an S3 server: to read a disk, Trino needs parts that
come with all of it only, which is twice as much to fetch.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from lakegate.components import local_stack
from lakegate.config import load_settings
from lakegate.lake import Lake, connect
from lakegate.progress import SilentNarrator
from proofs.result import ProofResult
from support.changed_table import publish_changed
from support.s3_server import S3Server
from support.served_lake import serving
from support.snippet_runner import facts
from support.trino import VERSION, Trino, TrinoError, trino

TRIPS = "trino.green-trips"
TYPES = "trino.eu.All_Types"
TAG = "trino/first"
TOKEN = "trino-reader-s3cret"
_REAL_TRIPS = Path(__file__).resolve().parents[3] / "shared" / "data" / "green_tripdata_2024-01.parquet"
_NESTED = pa.struct([("zone", pa.string()), ("codes", pa.list_(pa.int32()))])
_TYPES: dict[str, tuple[Any, list[Any]]] = {
    "id": (pa.int64(), [1, 2, 3, 4]),
    "amount": (
        pa.decimal128(38, 18),
        [Decimal("12345678901234567890.123456789012345678"), None, Decimal(0), Decimal(-1)],
    ),
    "share": (pa.float64(), [float("nan"), float("inf"), -0.0, None]),
    "small": (pa.float32(), [0.5, float("-inf"), None, 1.5]),
    "at": (
        pa.timestamp("us"),
        [datetime(1, 1, 1), datetime(1582, 10, 4, 23, 59, 59, 999999), None, datetime(9999, 12, 31)],
    ),
    "moment": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1500, 2, 28, tzinfo=UTC),
            None,
            datetime(1969, 12, 31, 23, tzinfo=UTC),
            datetime(2024, 2, 29, tzinfo=UTC),
        ],
    ),
    "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 15), None, date(2100, 2, 28)]),
    "is_new": (pa.bool_(), [True, False, None, True]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None, b"lake"]),
    "Name 😀 \"x\" 'y'": (pa.string(), ["", "'; DROP TABLE x; --", "😀\u202e", None]),
    "tags": (pa.list_(pa.string()), [["a", None], [], None, ["b"]]),
    "place": (
        _NESTED,
        [{"zone": "N", "codes": [1, None]}, None, {"zone": None, "codes": []}, {"zone": "", "codes": None}],
    ),
    "seen": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None, [("b", None)]]),
}


@dataclass(frozen=True)
class _Way:
    """A snippet, and what it must lead to.

    Attributes:
        name: What it is called in failures, and in Trino.
        table: The table.
        text: The snippet.
        expected: The rows, as lakegate's own query has them.
    """

    name: str
    table: str
    text: str
    expected: pa.Table


def prove(home: Path, *, tell: Callable[[str], object] = lambda _: None) -> ProofResult:
    """Publish the tables on a stack of their own, and ask Trino for them."""
    folder, server = home / "trino", S3Server()
    folder.mkdir()
    with ExitStack() as opened:
        opened.callback(server.remove)
        server.start()
        given = {**server.credentials, "AWS_ENDPOINT_URL": server.endpoint}
        opened.enter_context(mock.patch.dict(os.environ, given))
        (folder / "lakegate.toml").write_text(server.settings(f"{server.new_bucket().uri}/lake"), encoding="utf-8")
        opened.callback(lambda: local_stack(folder, load_settings(folder), SilentNarrator()).down())
        lake = opened.enter_context(closing(connect(folder)))
        tables = _publish(lake)
        tell("Published. Trino is started, and fetched if need be")
        open_one = opened.enter_context(serving(folder))
        guarded = opened.enter_context(serving(folder, "--token", "env:READER_TOKEN", READER_TOKEN=TOKEN))
        ways = list(_ways(lake, tables, open_one.url, guarded.url))
        files = {way.name: way.text.partition("\n\n")[0] + "\n" for way in ways}
        engine = opened.enter_context(trino(folder / "engine", files, LAKE_READER_TOKEN=TOKEN))
        failures = [one for way in ways for one in _differences(engine, way)]
        failures += _writes_let_through(engine, ways)
    return ProofResult("trino", len(ways), failures, f"Trino {VERSION} read {', '.join(tables)}")


def _publish(lake: Lake) -> list[str]:
    rows = pa.table({name: pa.array(values, kind) for name, (kind, values) in _TYPES.items()})
    with lake.transaction() as tx:
        tx.append(TYPES, rows)
    lake.tags.create(TAG) if not _REAL_TRIPS.is_file() else publish_changed(lake, TRIPS, _REAL_TRIPS, TAG)
    return [TYPES, *([TRIPS] if _REAL_TRIPS.is_file() else [])]


def _ways(lake: Lake, tables: Sequence[str], open_url: str, guarded_url: str) -> Iterator[_Way]:
    commit = next(tag.hash for tag in lake.tags.list() if tag.name == TAG)
    states: dict[str, dict[str, Any]] = {"main": {"ref": "main"}, "tag": {"ref": TAG}, "commit": {"at": commit}}
    for table, (state, options) in product(tables, states.items()):
        quoted = ".".join(f"`{part}`" for part in table.split("."))
        expected = lake.query(f"SELECT * FROM {quoted}", **options).to_arrow()
        servers: dict[str, dict[str, Any]] = {
            "served": {"rest": open_url},
            "guarded": {"rest": guarded_url, "rest_token": True},
        }
        for by, server in servers.items():
            text = lake.snippet(table, "trino", **options, **server).text
            yield _Way(f"{by}_{state}_{tables.index(table)}", table, text, expected)


def _differences(engine: Trino, way: _Way) -> Iterator[str]:
    where = f"{way.name} ({way.table})"
    query = way.text.rpartition("\n")[2].replace("FROM lake.", f"FROM {way.name}.")
    try:
        names, few = engine.ask(query.rstrip(";"))
        _, rows = engine.ask(query.partition(" LIMIT ")[0])
    except TrinoError as error:
        yield f"{where}: {error}"
        return
    wanted = way.expected
    if [name.lower() for name in wanted.column_names] != list(names):
        yield f"{where}: columns {names}"
        return
    if len(few) != min(10, wanted.num_rows):
        yield f"{where}: the snippet's own query returned {len(few)} rows"
    columns = [[_value(row[i], field.type) for row in rows] for i, field in enumerate(wanted.schema)]
    found = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, wanted.schema, strict=True)],
        schema=wanted.schema,
    )
    if way.table == TYPES:
        for one, other in zip(_sorted(wanted), _sorted(found), strict=True):
            if str(one) != str(other):  # NaN is not equal to itself
                yield f"{where}: {other}, not {one}"
        return
    ours, theirs = facts(wanted), facts(found)
    if ours != theirs:
        yield f"{where}: {[(key, theirs.get(key), ours[key]) for key in ours if theirs.get(key) != ours[key]]}"


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


def _value(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911 - a line for each type
    """Return a value of Trino's JSON as Python has it."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value.replace(" UTC", "+00:00"))
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_binary(kind):
        return b64decode(value)
    if pa.types.is_struct(kind):
        return {field.name: _value(one, field.type) for one, field in zip(value, kind, strict=True)}
    if pa.types.is_list(kind):
        return [_value(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [(key, _value(one, kind.item_type)) for key, one in value.items()]
    return value


def _writes_let_through(engine: Trino, ways: Sequence[_Way]) -> Iterator[str]:
    for way in ways:
        table = way.text.rpartition("FROM lake.")[2].partition(" LIMIT ")[0]
        schema = table.partition(".")[0]
        for write in (
            f"INSERT INTO {way.name}.{table} SELECT * FROM {way.name}.{table}",
            f"DELETE FROM {way.name}.{table}",
            f"CREATE TABLE {way.name}.{schema}.mine (id bigint)",
            f"DROP TABLE {way.name}.{table}",
            f"CREATE SCHEMA {way.name}.mine",
        ):
            try:
                engine.ask(write)
            except TrinoError:
                continue
            yield f"{way.name}: a write went through: {write}"
