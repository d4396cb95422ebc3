"""Lakes of different age in one stack: a branch as target, a table and a journal each, after so many runs.

A stack for each would measure how two JVMs share a machine. So both ages have one catalog and one engine; what differs
is what grows with the number of runs: the history of the target, the table's metadata, the journal. Each earlier run
has its commit with the properties of a real one, and its rows in the journal (run, steps, checks, claims, event), made
by the journal's own functions from these commits and from copies of the first run, which is real. The table's newest
state is real metadata: a manifest of all but the last 100 runs, and 100 appends, which Iceberg merges at the first
ingest to come, as it does at every 100th. The states between have no metadata, as nothing asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import progress
from benchmarks.staging import CHECKS, COLUMNS, ROWS, Staging, source_file
from lakegate.config import HOME_NAME
from lakegate.context import Context
from lakegate.journal import runs as stored
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.ledger.event import Event, as_properties, effects_on, past_commit
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run, new_run_id
from lakegate.wap.ingest import ingest

_APPENDS = 100


@dataclass(frozen=True)
class Past:
    """A lake after so many runs.

    Attributes:
        context: Context with a journal of its own.
        target: Its branch.
        table: The table that all the runs were published to.
    """

    context: Context
    target: str
    table: TableIdentifier

    def ingest(self, source: Path) -> Run:
        """Ingest files as :meth:`lakegate.Lake.ingest` does, except that the target is not ``main``."""
        from lakegate.sources import discover

        run_id = new_run_id()
        batch = discover([str(source)], format=None, narrator=self.context.narrator)
        order = IngestRequest(
            run_id=run_id,
            table=self.table,
            batch=batch,
            checks=CHECKS,
            branch=f"wap/{self.table}_{run_id}",
            target=self.target,
        )
        return ingest(self.context, order)


def make_past(context: Context, folder: Path, staging: Staging, runs: int) -> Past:
    """Return a lake after ``runs`` runs, the first of which is real."""
    target = f"after-{runs}"
    database = SqliteDatabase(folder / target / HOME_NAME / "journal.db")
    own = replace(context, journal=Journal(database))
    root = context.catalog.create_branch(target, context.catalog.get_ref("main"))
    sync(own, target)
    past = Past(own, target, TableIdentifier.parse(f"bench.after_{runs}"))
    first = past.ingest(small_file(folder / target))
    assert first.status == "published"
    pointer = context.catalog.get_table(past.table, context.catalog.get_ref(target))
    assert pointer is not None
    singles = min(_APPENDS, runs - 1)
    bulk = runs - 1 - singles
    grown = staging.grown(pointer, [*([bulk] if bulk else []), *([1] * singles)])
    copies = _repeat(past, first, pointer, grown, runs - 1)
    with database.writing() as tx:
        stored.store(tx, *copies)
    commits = sum(1 for _ in context.catalog.history(target, until=root.hash))
    assert commits >= runs, commits
    return past


def small_file(folder: Path) -> Path:
    """Write a new file of a few rows."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid4()}.parquet"
    values = list(range(ROWS))
    pq.write_table(pa.table({column.name: values for column in COLUMNS}), path)
    return path


def _repeat(past: Past, first: Run, before: TablePointer, after: TablePointer, times: int) -> list[Run]:
    """Let it look as if ``times`` more such runs as ``first`` had led from ``before`` to ``after``; return them."""
    catalog, journal = past.context.catalog, past.context.journal
    head = catalog.get_ref(past.target)
    runs: list[Run] = []
    for number in range(1, times + 1):
        run = _copied(first, head, number)
        between = before.model_copy(update={"metadata_location": f"{before.metadata_location}-{number}"})
        head = catalog.commit(_publication(past, run, head, after if number == times else between))
        runs.append(_published(run, head))
        if number % 1_000 == 0:
            progress(f"{number:,} of {times:,} earlier runs")
    commits = list(catalog.history(head.hash, until=journal.synced(past.target)))
    journal.record(past.target, [past_commit(one) for one in reversed(commits)], head.hash)
    return runs


def _copied(first: Run, head: Ref, number: int) -> Run:
    assert first.request is not None
    started = first.started_at + timedelta(milliseconds=number)
    run_id = new_run_id(started)
    batch = first.request.batch.only((source_file(run_id),))
    named = {"run_id": run_id, "branch": f"{first.branch[: -len(first.run_id)]}{run_id}"}
    request = first.request.model_copy(update={**named, "base": head.hash, "batch": batch})
    staged = tuple(one.model_copy(update=named) for one in first.staged)
    reports = tuple(one.model_copy(update=named) for one in first.reports)
    about = {"request": request, "staged": staged, "reports": reports, "base": head.hash, "started_at": started}
    return first.model_copy(update={**named, **about, "status": "staged", "finished_at": None})


def _publication(past: Past, run: Run, head: Ref, pointer: TablePointer) -> CommitRequest:
    assert run.request is not None
    files = tuple((file.uri, file.version) for file in run.request.batch.files)
    event = Event(
        run=run.run_id,
        kind=run.kind,
        tables=effects_on(run.tables, run.run_id, files),
        branch=run.branch,
        audit=f"{len(CHECKS)} passed, 0 warned",
    )
    return CommitRequest(
        branch=past.target,
        base=head.hash,
        message=f"Publish {run.table} ({ROWS} rows)",
        puts=(pointer,),
        properties=as_properties(event),
    )


def _published(run: Run, head: Ref) -> Run:
    assert run.publication is not None
    publication = run.publication.model_copy(update={"run_id": run.run_id, "commit": head.hash})
    return run.model_copy(update={"status": "published", "publication": publication, "finished_at": run.started_at})
