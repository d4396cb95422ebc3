"""Claims on source files, leases, what the catalog's history says; runs of more than one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OLD = sa.table("runs_0001", *map(sa.column, ("run_id", "table_name", "branch", "status", "started_at", "document")))
_RUNS = ("run_id", "kind", "name", "branch", "status", "started_at", "finished_at", "reverted_by", "document")
_CHECKS = ("name", "severity", "verdict", "evidence", "failing_rows", "total_rows")
_BATCH = 200


def upgrade() -> None:
    """Make the tables, and take over the runs."""
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
    """Return the run's new document; a minimal one when the old one is not what the first release wrote."""
    try:
        return _converted(json.loads(row["document"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {
            "run_id": row["run_id"],
            "tables": [row["table_name"]],
            "branch": row["branch"],
            "status": row["status"],
            "started_at": row["started_at"],
            "detail": "What else was known of this run could not be read when the journal was upgraded.",
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
