"""Writing through the gate against writing to Nessie directly, as an engine would that has Nessie's own catalog.

The gate is a process of its own, as in use. A commit is an append: a snapshot with a manifest and a manifest list that
are written before. Directly, it's the request for the table's state and the commit, without any metadata file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import psutil
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.harness import Figure, Prepare, interleave, prepared
from benchmarks.ingest import COLUMNS
from lakegate.api.gate import OpenBranch
from lakegate.components import Components
from lakegate.iceberg.files import local_path
from lakegate.iceberg.manifests import (
    ManifestList,
    new_listed_manifest,
    read_container,
    read_entries,
    read_list,
    write_entries,
    write_list,
)
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.spark.sessions import CATALOG, end_session, remote_sessions, session_settings

ROWS = 1_000_000
WRITERS = 8
_COMMITS = 5
"""In a row, of each writer."""
_AT_ONCE = 20
_DIRECT = "bench/direct"
_FIRST = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
_TABLES = [f"w{number}" for number in range(WRITERS)]


def measure(lake: Lake, components: Components, rounds: int) -> Iterator[Figure]:
    """Yield the ratios."""
    opened = lake.gate.open(branch="bench/gate")
    components.catalog.create_branch(_DIRECT, components.catalog.get_ref("main"))
    with _served(lake.home) as (url, process):
        yield _inserts(components, url, opened, rounds)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {opened.token}"}, timeout=60) as client:
            through, direct = _tables(components, url, client, opened)
            yield _commits(through[0], direct[0], rounds * 4)
            yield _loads(components, through[0], rounds * 3)
            yield _writers(through, direct, rounds * 2)
        megabytes = process.memory_info().rss / 2**20
    yield Figure("gate, memory in MB", megabytes, None, "resident, after all of this")


@contextmanager
def _served(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "lakegate", "--home", str(home), "serve", "--port", "0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
        finally:
            process.kill()


def _inserts(components: Components, url: str, opened: OpenBranch, rounds: int) -> Figure:
    catalog = components.catalog
    settings = session_settings(catalog.spark_options(catalog.get_ref(_DIRECT)))
    gate = "spark.sql.catalog.gate"
    options = {
        gate: "org.apache.iceberg.spark.SparkCatalog",
        f"{gate}.type": "rest",
        f"{gate}.uri": url,
        f"{gate}.token": opened.token,
        f"{gate}.cache-enabled": "false",
    }
    spark: Any = remote_sessions(components.stack.up().spark_url)({**settings, **options})
    try:
        rows = spark.range(0, ROWS, 1, 2).selectExpr(*COLUMNS)
        for name in ("gate", CATALOG):
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.spark")
            rows.limit(10).writeTo(f"{name}.spark.rows").create()

        def insert(name: str) -> None:
            rows.writeTo(f"{name}.spark.rows").append()

        medians = interleave(rounds, {"gate": partial(insert, "gate"), "direct": partial(insert, CATALOG)})
    finally:
        end_session(spark)
    detail = f"{medians['gate']:.2f} s / {medians['direct']:.2f} s, {ROWS:,} rows by Spark"
    return Figure("gate, INSERT / by Nessie's own catalog", medians["gate"] / medians["direct"], 1.10, detail)


@dataclass(frozen=True)
class _Through:
    """A table, written through the gate."""

    client: httpx.Client
    path: str

    def load(self) -> Any:
        return self.client.get(self.path).raise_for_status().json()

    def append(self) -> Callable[[], object]:
        """Write a snapshot's files, and return its commit."""
        loaded = self.load()["metadata"]
        snapshot = loaded["snapshots"][-1]
        [*known] = read_list(local_path(snapshot["manifest-list"]).read_bytes()).manifests
        container = read_container(local_path(known[0].file.manifest_path).read_bytes())
        [first, *_] = read_entries(container, known[0].file)
        number, name = loaded["last-sequence-number"] + 1, f"{loaded['properties']['write.metadata.path']}/{uuid4()}"
        snapshot_id = uuid4().int >> 65
        entry = replace(first, snapshot_id=snapshot_id, sequence_number=number, file_sequence_number=number)
        content = write_entries(container.meta, [entry], inherit=True)
        local_path(f"{name}-m0.avro").write_bytes(content)
        made = new_listed_manifest(f"{name}-m0.avro", len(content), [entry], 0, snapshot_id, number, None)
        lists = ManifestList(read_list(local_path(snapshot["manifest-list"]).read_bytes()).meta, (*known, made))
        local_path(f"{name}.avro").write_bytes(write_list(lists, snapshot_id, snapshot["snapshot-id"], number))
        new = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": snapshot["snapshot-id"],
            "sequence-number": number,
            "timestamp-ms": loaded["last-updated-ms"] + 1,
            "manifest-list": f"{name}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        before = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot["snapshot-id"]}
        body = {"requirements": [before], "updates": [{"action": "add-snapshot", "snapshot": new}, ref]}
        return lambda: self._commit(body)

    def commit(self) -> None:
        """Commit a change for which no file is written before."""
        change = {"action": "set-properties", "updates": {"note": str(uuid4())}}
        self._commit({"requirements": [], "updates": [change]})

    def _commit(self, body: Any) -> None:
        answer = self.client.post(self.path, json=body)
        assert answer.is_success, answer.text


@dataclass(frozen=True)
class _Direct:
    """A table, written directly."""

    components: Components
    table: TableIdentifier
    numbers: Iterator[int]

    def commit(self) -> None:
        """Commit another state."""
        catalog = self.components.catalog
        head, found = catalog.get_ref_with_tables(_DIRECT, [self.table])
        pointer = found[self.table]
        assert pointer is not None
        moved = pointer.model_copy(update={"snapshot_id": next(self.numbers)})
        catalog.commit(CommitRequest(branch=_DIRECT, base=head.hash, message="append", puts=(moved,)))


def _tables(
    components: Components, url: str, client: httpx.Client, opened: OpenBranch
) -> tuple[Sequence[_Through], Sequence[_Direct]]:
    gate = load_catalog("bench", type="rest", uri=url, token=opened.token)
    gate.create_namespace("gated")
    for name in _TABLES:
        gate.create_table(f"gated.{name}", _FIRST.schema).append(_FIRST)
    gate.close()
    catalog = components.catalog
    pointers = catalog.list_tables(catalog.get_ref(opened.branch))
    puts = [one.model_copy(update={"content_id": None}) for one in pointers if one.table.namespace == ("gated",)]
    head = catalog.get_ref(_DIRECT)
    catalog.commit(
        CommitRequest(
            branch=_DIRECT, base=head.hash, message="tables", puts=tuple(puts), namespaces=(("gated",),)
        )
    )  # fmt: skip
    path = f"/v1/{quote(opened.branch, safe='')}/namespaces/gated/tables"
    numbers = count(1)
    return (
        [_Through(client, f"{path}/{name}") for name in _TABLES],
        [_Direct(components, TableIdentifier.parse(f"gated.{name}"), numbers) for name in _TABLES],
    )


def _commits(through: _Through, direct: _Direct, rounds: int) -> Figure:
    contestants: dict[str, Prepare] = {"gate": through.append, "direct": lambda: direct.commit}
    medians = prepared(rounds, contestants)
    detail = f"{medians['gate'] * 1000:.1f} ms / {medians['direct'] * 1000:.1f} ms, an append"
    return Figure("gate, commit / Nessie's own", medians["gate"] / medians["direct"], 2.5, detail)


def _loads(components: Components, through: _Through, rounds: int) -> Figure:
    with httpx.Client(base_url=components.stack.up().nessie_uri, timeout=60) as nessie:
        body = {"requestedKeys": [{"elements": ["gated", _TABLES[0]]}]}
        path = f"trees/{quote(_DIRECT, safe='')}/contents"
        medians = interleave(
            rounds,
            {
                "gate": lambda: [through.load() for _ in range(_AT_ONCE)],
                "nessie": lambda: [nessie.post(path, json=body).raise_for_status().json() for _ in range(_AT_ONCE)],
            },
        )
    each = {name: seconds / _AT_ONCE * 1000 for name, seconds in medians.items()}
    detail = f"{each['gate']:.1f} ms / {each['nessie']:.1f} ms, for a writer"
    return Figure("gate, load table / Nessie's bare answer", each["gate"] / each["nessie"], 2.0, detail)


def _writers(through: Sequence[_Through], direct: Sequence[_Direct], rounds: int) -> Figure:
    with ThreadPoolExecutor(WRITERS) as pool:

        def commits(table: _Through | _Direct) -> None:
            for _ in range(_COMMITS):
                table.commit()

        medians = interleave(
            rounds,
            {
                "gate": lambda: list(pool.map(commits, through)),
                "direct": lambda: list(pool.map(commits, direct)),
            },
        )
    rates = {name: WRITERS * _COMMITS / seconds for name, seconds in medians.items()}
    detail = f"{rates['gate']:.0f} / {rates['direct']:.0f} commits a second, {WRITERS} writers of a table each"
    return Figure("gate, 8 writers x 8 tables / directly", rates["gate"] / rates["direct"], 0.4, detail, bound="least")
