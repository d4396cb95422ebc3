"""What a client of the cluster does on its host: ``python -m proofs.cluster_client JOB ARGUMENT…``.

A job prints JSON lines: ``{"begins": …}`` before what is to be disturbed, and last what came of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STORE = "http://store.lake.test:8333"
TRIPS = ("not_null(id)", "unique(id)", "accepted_range(fare, min=0)", "match_regex(zone, 'z[0-9]+')")


def tell(**facts: object) -> None:
    """Print a line for the proof."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def make(name: str, start: str, rows: str) -> None:
    """Put rows into the bucket for files, as Parquet or CSV; one in a thousand has a negative fare."""
    import boto3
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    ids = range(int(start), int(start) + int(rows))
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "zone": [f"z{number % 265}" for number in ids],
        "fare": [-1.0 if number % 1000 == 999 else number % 90 / 2 for number in ids],
    }
    write = pq.write_table if name.endswith(".parquet") else pyarrow.csv.write_csv
    local = Path(name).name
    write(pa.table(columns), local)
    boto3.client("s3", endpoint_url=STORE).upload_file(local, "landing", name)
    tell(rows=int(rows))


def everything(space: str) -> None:
    """Do once what lakegate can do."""
    import lakegate
    from lakegate.errors import LakegateError

    with lakegate.connect() as lake:
        parquet = lake.ingest(f"{space}.trips", "s3://landing/all/a.parquet", checks=TRIPS[:2])
        csv = lake.ingest(f"{space}.trips", "s3://landing/all/b.csv", checks=[*TRIPS[:2], TRIPS[3]])
        rejected = lake.ingest(f"{space}.trips", "s3://landing/all/c.parquet", checks=TRIPS, on_rejected="return")
        apart = lake.ingest(
            f"{space}.good", "s3://landing/all/c.parquet", checks=["accepted_range(fare, min=0, severity='quarantine')"]
        )
        local = lake.ingest(f"{space}.local", "a.parquet")
        upsert = lake.ingest(
            f"{space}.trips", "s3://landing/all/d.parquet", mode="upsert", key=["id"], checks=["unique(id)"]
        )
        with lake.transaction("zones") as tx:
            tx.overwrite(f"{space}.zones", tx.sql(f"SELECT zone, count(*) AS n FROM {space}.trips GROUP BY zone"))
            tx.check(f"{space}.zones", "unique(zone)", f"relationships(zone, to='{space}.trips', field='zone')")
        with lake.transaction("two") as tx:
            tx.append(f"{space}.zones", [{"zone": "none", "n": 0}])
            tx.append(f"{space}.local", tx.sql(f"SELECT * FROM {space}.trips WHERE id < 10"))
        before = lake.table(f"{space}.zones").rows
        reverted = lake.revert(tx.run.run_id)
        optimized = lake.maintenance.optimize(f"{space}.trips")
        try:
            lake.query("SELECT * FROM parquet.`file:///var/tmp/only-here.parquet`").to_arrow()
            local_path = "read"
        except LakegateError as error:
            local_path = f"{type(error).__name__}: {error}"
        runs = (parquet, csv, rejected, apart, local, upsert, reverted, optimized)
        counts = {name: lake.table(f"{space}.{name}").rows for name in ("trips", "good", "local", "zones")}
        set_aside = lake.quarantine.list(f"{space}.good")[0].rows
        tell(statuses=[run.status for run in runs], counts=counts, set_aside=set_aside, before=before, path=local_path)


def ingest(table: str, path: str, run_id: str) -> None:
    """Write, audit and publish one file in steps, and say when each begins."""
    import lakegate
    from lakegate.errors import LakegateError

    began = time.monotonic()
    try:
        with lakegate.connect() as lake:
            lake.tables()
            tell(begins="write")
            run = lake.write(table, path, run_id=run_id, checks=TRIPS[:2])
            if run.finished_at is None:
                tell(begins="audit", after_s=round(time.monotonic() - began, 1))
                run = lake.audit_run(run_id)
                tell(begins="publish", after_s=round(time.monotonic() - began, 1))
                run = lake.publish_run(run_id) if run.finished_at is None else run
            tell(status=run.status, after_s=round(time.monotonic() - began, 1))
    except LakegateError as error:
        text = f"{type(error).__name__}: {error} | {error.hint}"
        tell(error=text, code=error.exit_code, after_s=round(time.monotonic() - began, 1))


def count(table: str) -> None:
    """Say what is published, and what is left."""
    import lakegate
    from lakegate.errors import NotFoundError

    with lakegate.connect() as lake:
        try:
            answer = lake.query(f"SELECT count(*) AS n, count(DISTINCT id) AS ids FROM {table}").to_arrow().to_pylist()
        except NotFoundError:
            answer = [{"n": 0, "ids": 0}]
        branches = [ref.name for ref in lake.branches.list() if table in ref.name]
        findings = [found.message for found in lake.maintenance.verify(deep=True).findings]
        tell(**answer[0], branches=branches, findings=findings)


def write_gate(token: str, appends: str) -> None:
    """Write through the gate with PyIceberg and this host's own keys."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "rest",
        "uri": "https://gate.lake.test:8181",
        "token": token,
        "s3.endpoint": STORE,
        "s3.region": "us-east-1",
    }
    catalog = load_catalog("gate", **properties)
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    catalog.create_namespace_if_not_exists("door")
    table = catalog.create_table_if_not_exists("door.rows", rows.schema)
    for number in range(int(appends)):
        tell(begins=f"append {number}")
        began = time.monotonic()
        try:
            table.append(rows)
            tell(appended=number, after_s=round(time.monotonic() - began, 1))
        except Exception as error:  # noqa: BLE001 - whatever PyIceberg says
            tell(error=f"{type(error).__name__}: {error}"[:600], after_s=round(time.monotonic() - began, 1))
        time.sleep(0.5)


def flow(table: str, path: str) -> None:
    """Ingest a file in a flow of Prefect, whose server runs on this host."""
    import os

    from support.prefect_server import PrefectServer

    make(path.removeprefix("s3://landing/"), "100000", "100")
    server = PrefectServer(Path("prefect"), brief=True)
    server.start()
    try:
        os.environ.update(server.variables)
        from lakegate.integrations.prefect import wap_flow

        run: Any = wap_flow(table, path, checks=["not_null(id)"])
        tell(status=run.status, rows=run.publication.rows)
    finally:
        server.kill()


JOBS: Mapping[str, Callable[..., Any]] = {
    "make": make,
    "everything": everything,
    "flow": flow,
    "ingest": ingest,
    "count": count,
    "write-gate": write_gate,
}


if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
