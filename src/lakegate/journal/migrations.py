"""Migrations of the journal's schema, each from the version before.

A migration is complete in itself, and never changes after its release. Migrations run in the transaction that the
journal opened: SQLite can roll back schema changes too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OLD = sa.table("runs_0001", *map(sa.column, ("run_id", "table_name", "branch", "status", "started_at", "document")))
_RUNS = ("run_id", "kind", "name", "branch", "status", "started_at", "finished_at", "reverted_by", "document")
_CHECKS = ("name", "severity", "verdict", "evidence", "failing_rows", "total_rows")
_BATCH = 200
_ENDED = "status NOT IN ('running', 'staged')"
MIGRATIONS: dict[str, Callable[[], None]] = {}
"""The migration to each version from the one before."""


def _to(revision: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(migration: Callable[[], None]) -> Callable[[], None]:
        MIGRATIONS[revision] = migration
        return migration

    return keep


@_to("0001")
def _v0001() -> None:
    """The first release: one table of runs."""
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("table_name", sa.String(512), nullable=False),
        sa.Column("branch", sa.String(255), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("started_at", sa.String(40), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("runs_started_at", "runs", ["started_at"])
    op.create_index("runs_branch", "runs", ["branch", "started_at"])


@_to("0002")
def _v0002() -> None:
    """Add claims on source files, leases, and the catalog's history; allow runs of more than one table."""
    op.drop_index("runs_started_at", "runs")
    op.drop_index("runs_branch", "runs")
    op.rename_table("runs", "runs_0001")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX runs_pkey RENAME TO runs_0001_pkey")
    _create_runs()
    _create_claims()
    for rows in _old_rows():
        _store([_convert(row) for row in rows])
    op.drop_table("runs_0001")


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("name", _TEXT),
        sa.Column("branch", _TEXT, nullable=False),
        sa.Column("status", _TEXT, nullable=False),
        sa.Column("started_at", _TEXT, nullable=False),
        sa.Column("finished_at", _TEXT),
        sa.Column("reverted_by", _TEXT),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("runs_started_at", "runs", ["started_at", "run_id"])
    for name in ("branch", "status", "kind"):
        op.create_index(f"runs_{name}", "runs", [name, "started_at"])
    op.create_table(
        "run_tables",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("table_name", _TEXT, primary_key=True),
        sa.Column("started_at", _TEXT, nullable=False),
    )
    op.create_index("run_tables_table", "run_tables", ["table_name", "started_at", "run_id"])
    op.create_table(
        "steps",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("started_at", _TEXT, nullable=False),
        sa.Column("finished_at", _TEXT),
        sa.Column("outcome", _TEXT, nullable=False),
    )
    op.create_table(
        "check_results",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        *(sa.Column(name, _TEXT, nullable=False) for name in ("table_name", "name", "check_text")),
        *(sa.Column(name, _TEXT, nullable=False) for name in ("severity", "verdict", "evidence")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("failing_rows", "total_rows")),
    )


def _create_claims() -> None:
    op.create_table(
        "claims",
        sa.Column("claim_id", _COUNTER, primary_key=True),
        sa.Column("table_name", _TEXT, nullable=False),
        sa.Column("path", _TEXT, nullable=False),
        sa.Column("version", _TEXT, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("run_id", _TEXT, nullable=False),
        sa.UniqueConstraint("table_name", "path", "version", name="claims_version"),
    )
    op.create_index("claims_run", "claims", ["run_id", "state"])
    op.create_table(
        "leases",
        sa.Column("run_id", _TEXT, primary_key=True),
        *(sa.Column(name, _TEXT, nullable=False) for name in ("holder", "renewed_at", "expires_at")),
    )
    op.create_table("history", sa.Column("target", _TEXT, primary_key=True), sa.Column("head", _TEXT, nullable=False))
    op.create_table(
        "events",
        sa.Column("target", _TEXT, primary_key=True),
        sa.Column("commit_hash", _TEXT, primary_key=True),
        sa.Column("run_id", _TEXT, nullable=False),
    )


def _old_rows() -> Iterator[list[dict[str, Any]]]:
    last = ""
    while True:
        query = sa.select(_OLD).where(_OLD.c.run_id > last).order_by(_OLD.c.run_id).limit(_BATCH)
        rows = [dict(row) for row in op.get_bind().execute(query).mappings()]
        if not rows:
            return
        yield rows
        last = rows[-1]["run_id"]


def _convert(row: dict[str, Any]) -> dict[str, Any]:
    """Return the run's new document; a minimal one if the old one isn't what the first release wrote."""
    try:
        return _converted(json.loads(row["document"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {
            "run_id": row["run_id"],
            "tables": [row["table_name"]],
            "branch": row["branch"],
            "status": row["status"],
            "started_at": row["started_at"],
            "detail": "The rest of this run's record couldn't be read when the journal was upgraded.",
        }


def _converted(old: dict[str, Any]) -> dict[str, Any]:
    new = {key: value for key, value in old.items() if key not in ("table", "staged", "report")}
    new["tables"] = [old["table"]]
    new["kind"] = "branch" if old.get("request") is None and old["branch"] else "ingest"
    staged, report = old.get("staged"), old.get("report")
    new["staged"] = [] if staged is None else [_staged(staged)]
    new["reports"] = [] if report is None else [report]
    _text_of_time(new["started_at"])
    _check_rows(new)
    return new


def _staged(old: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in old.items() if key != "created"}, "before": None, "change": "append"}


def _store(runs: list[dict[str, Any]]) -> None:
    _insert("runs", _RUNS, [_run_row(run) for run in runs])
    tables = [(run["run_id"], table, _text_of_time(run["started_at"])) for run in runs for table in run["tables"]]
    _insert("run_tables", ("run_id", "table_name", "started_at"), tables)
    checks = [row for run in runs for row in _check_rows(run)]
    _insert("check_results", ("run_id", "position", "table_name", "check_text", *_CHECKS), checks)


def _insert(table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if rows:
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        op.bulk_insert(sa.table(table, *map(sa.column, columns)), named)


def _run_row(run: dict[str, Any]) -> tuple[Any, ...]:
    times = _text_of_time(run["started_at"]), _text_of_time(run.get("finished_at"))
    kind = run.get("kind", "ingest")
    return (run["run_id"], kind, None, run["branch"], run["status"], *times, None, json.dumps(run, ensure_ascii=False))


def _check_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = [(report["table"], result) for report in run.get("reports", ()) for result in report["results"]]
    return [
        (run["run_id"], position, table, result["check"], *(result[name] for name in _CHECKS))
        for position, (table, result) in enumerate(found)
    ]


def _text_of_time(text: str | None) -> str | None:
    if text is None:
        return None
    return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="microseconds")


@_to("0003")
def _v0003() -> None:
    """Add the outcomes of files found in folders."""
    op.create_table(
        "landings",
        sa.Column("table_name", _TEXT, primary_key=True),
        sa.Column("uri", _TEXT, primary_key=True),
        sa.Column("stamp", _TEXT, nullable=False),
        sa.Column("outcome", _TEXT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("run_id", _TEXT),
        sa.Column("reason", _TEXT),
        sa.Column("noted_at", _TEXT, nullable=False),
    )


@_to("0004")
def _v0004() -> None:
    """Add groups of alerts."""
    op.create_table(
        "alert_groups",
        sa.Column("channel", _TEXT, primary_key=True),
        sa.Column("alert", _TEXT, primary_key=True),
        sa.Column("ends_at", _TEXT, nullable=False),
    )


@_to("0005")
def _v0005() -> None:
    """Change nothing."""


@_to("0006")
def _v0006() -> None:
    """Add the identity of files, which shows that two paths are the same file; find files by their content."""
    op.add_column("claims", sa.Column("identity", _TEXT, nullable=False, server_default=""))
    op.create_index("claims_content", "claims", ["table_name", "version"])


@_to("0007")
def _v0007() -> None:
    """Add the token that owns a lease, whatever process holds it.

    Nobody has the token of an older lease: it lasts until it expires, or until its process has ended.
    """
    op.add_column("leases", sa.Column("token", _TEXT, nullable=False, server_default=""))


@_to("0008")
def _v0008() -> None:
    """Store one kind of request in runs, which older releases can't read.

    No table changes: the version alone keeps older releases from reading such runs as empty.
    """


@_to("0009")
def _v0009() -> None:
    """Add the orchestrator that started each run, to filter by. Runs of earlier releases have none."""
    op.add_column("runs", sa.Column("orchestrator", _TEXT))
    op.create_index("runs_orchestrator", "runs", ["orchestrator", "started_at"])


@_to("0010")
def _v0010() -> None:
    """Add downstream systems, their deliveries, and the states that they mirror."""
    op.create_table(
        "downstreams",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("since", _TEXT, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", _COUNTER, primary_key=True),
        sa.Column("downstream", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("ref", _TEXT, nullable=False),
        sa.Column("commit_hash", _TEXT),
        sa.Column("run_id", _TEXT),
        sa.Column("tables", sa.Text, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("queued_at", _TEXT, nullable=False),
        sa.Column("next_at", _TEXT),
        sa.Column("failing_since", _TEXT),
        sa.Column("ended_at", _TEXT),
        sa.Column("reason", sa.Text),
    )
    op.create_index("deliveries_downstream", "deliveries", ["downstream", "state", "delivery_id"])
    op.create_index("deliveries_run", "deliveries", ["run_id"])
    op.create_table(
        "mirrored",
        sa.Column("downstream", _TEXT, primary_key=True),
        sa.Column("table_name", _TEXT, primary_key=True),
        sa.Column("pointer", sa.Text, nullable=False),
        sa.Column("delivered_at", _TEXT, nullable=False),
    )


@_to("0011")
def _v0011() -> None:
    """Add counters, which start with the numbers of earlier runs."""
    table = op.create_table(
        "metrics",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("labels", _TEXT, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
    )
    connection = op.get_bind()
    rows: list[dict[str, object]] = []
    by_kind = f"SELECT kind, status, count(*) FROM runs WHERE {_ENDED} GROUP BY kind, status"  # noqa: S608 - our own
    for kind, status, number in connection.execute(sa.text(by_kind)):
        rows.append(_row("lakegate_runs", number, kind=kind, status=status))
    joined = "FROM runs JOIN run_tables ON run_tables.run_id = runs.run_id"
    by_table = f"SELECT table_name, status, count(*) {joined} WHERE {_ENDED} GROUP BY table_name, status"
    for name, status, number in connection.execute(sa.text(by_table)):
        rows.append(_row("lakegate_table_runs", number, table=name, status=status))
    last = (
        f"SELECT table_name, max(coalesce(finished_at, runs.started_at)) {joined} "
        "WHERE status = 'published' AND kind NOT IN ('revert', 'restore') GROUP BY table_name"
    )
    for name, time in connection.execute(sa.text(last)):
        seconds = datetime.fromisoformat(time).timestamp()
        rows.append(_row("lakegate_last_publish_timestamp_seconds", seconds, table=name))
    if rows:
        op.bulk_insert(table, rows)


def _row(name: str, value: float, **labels: str) -> dict[str, object]:
    return {"name": name, "labels": json.dumps(list(labels.items())), "value": float(value)}


@_to("0012")
def _v0012() -> None:
    """Add the queue of runs that wait to publish, so that another run's commit can include them."""
    op.create_table(
        "publish_queue",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("target", _TEXT, nullable=False),
        sa.Column("table_name", _TEXT, nullable=False),
        sa.Column("queued_at", _TEXT, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    columns = ["target", "table_name", "queued_at", "run_id"]
    op.create_index("publish_queue_table", "publish_queue", columns)


@_to("0013")
def _v0013() -> None:
    """Index all commits of a branch by their time. ``gc`` or a rebuild adds those from before this release."""
    op.add_column("events", sa.Column("committed_at", _TEXT))
    op.create_index("events_time", "events", ["target", "committed_at"])
    op.add_column("history", sa.Column("has_all_commits", sa.Integer, nullable=False, server_default="0"))


@_to("0014")
def _v0014() -> None:
    """Index the runs that left a branch, so that orphaned branches are found without listing all branches."""
    op.add_column("runs", sa.Column("branch_kept", sa.Integer, nullable=False, server_default="0"))
    op.create_index("runs_branch_kept", "runs", ["branch_kept", "status"])
    # Documents from the first release were converted by Python's json, which writes a space.
    kept = sa.text("UPDATE runs SET branch_kept = 1 WHERE document LIKE :kept OR document LIKE :converted")
    spellings = {"kept": '%"branch_kept":true%', "converted": '%"branch_kept": true%'}
    op.get_bind().execute(kept, spellings)


@_to("0015")
def _v0015() -> None:
    """Index runs by status and kind, and claims by state, to find the few claims of runs in progress."""
    op.create_index("runs_status_kind", "runs", ["status", "kind", "started_at"])
    op.create_index("claims_state", "claims", ["state"])
