"""``python -m benchmarks.scale [--commits N]``: what everyday commands cost in a lake, against one a tenth as large.

Each lake has a Nessie of its own, on RocksDB as in a project's local stack, with N commits of as many runs, and a
hundredth of them tables and branches, up to 1,000. No Spark: publishes are of runs that PyIceberg staged. Calls are
measured in this process, which shows what grows; some also as a user types them, each in a process of its own, which
shows what of that anybody notices. A lake that is kept (``--keep FOLDER``) is filled further by the next call, as
making 100,000 commits takes a while.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import httpx

from benchmarks.harness import Figure, progress
from benchmarks.staging import Staging, source_file
from lakegate.components import Components
from lakegate.config import load_settings
from lakegate.context import Context
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.ledger.event import Event, as_properties, effects_on
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.progress import SilentNarrator
from lakegate.wap.publish import publish

_LIMIT = 1.2
_SHOWN = 20
_WARM_UP = 10
_LONG_ENOUGH_S = 2.0
"""How long a call is measured at least: of more rounds, it's likelier that another program left one undisturbed."""
_MOST_TABLES = 1_000
_AT_ONCE = 4
"""Commits that are being made at the same time. Each of their tables is one's alone."""
_START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass
class Scaled:
    """A lake of a size."""

    lake: Lake
    context: Context
    staging: Staging
    tables: list[TableIdentifier]
    commits: list[Commit]
    home: Path

    @property
    def middle(self) -> Commit:
        """A commit halfway back. Its hash begins with a letter: a branch may be called so, which takes a look-up."""
        return next(one for one in self.commits[len(self.commits) // 2 :] if one.hash[0].isalpha())


_Work = Callable[[Scaled], Callable[[], object]]
"""Gets everything ready, which is not measured, and returns what is."""


def main() -> None:
    """Make both lakes, and measure."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", type=Path, help="folder for the lakes, to go on with")
    parser.add_argument("--only-make", action="store_true", help="measure nothing")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds after which nothing is begun")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakegate-scale-")))
        until = time.monotonic() + given.within
        few = stack.enter_context(scaled(folder / "few", given.commits // 10, until))
        many = stack.enter_context(scaled(folder / "many", given.commits, until))
        if given.only_make:
            return
        for figure in measure(few, many, given.rounds, until):
            print(figure, flush=True)


@contextmanager
def scaled(home: Path, commits: int, until: float) -> Iterator[Scaled]:
    """Run a lake with so many commits, if there is time to make them."""
    from support.secured_nessie import nessie

    home.mkdir(parents=True, exist_ok=True)
    store = {
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": home / "nessie",
        "quarkus.http.access-log.enabled": "false",
    }
    with nessie(home, {name: str(value) for name, value in store.items()}) as uri:
        settings = load_settings(
            home, env={"LAKEGATE_CATALOG_URI": uri, "LAKEGATE_CATALOG_WAREHOUSE": f"file://{home}/warehouse"}
        )
        components = Components(home, settings, session=None, narrator=SilentNarrator())
        with Lake(components) as lake, Staging(components.context) as staging:
            context = components.context
            number = min(max(commits // 100 // _AT_ONCE, 1) * _AT_ONCE, _MOST_TABLES)
            tables = _fill(context, staging, commits, number, until)
            sync(context, MAIN)
            newest = [commit for commit in context.catalog.history(MAIN) if RUN_ID_PROPERTY in commit.properties]
            yield Scaled(lake, context, staging, tables, newest, home)


def _fill(context: Context, staging: Staging, commits: int, number: int, until: float) -> list[TableIdentifier]:
    catalog = context.catalog
    there = {str(one.table): one for one in catalog.list_tables(catalog.get_ref(MAIN))}
    tables = [TableIdentifier.parse(f"scale.t{at:04}") for at in range(number)]
    for table in tables[len(there) :]:
        staging.create(str(table), appends=[1])
    pointers = {str(one.table): one for one in catalog.list_tables(catalog.get_ref(MAIN))}
    made = sum(1 for _ in catalog.history(MAIN))
    head = catalog.get_ref(MAIN)

    def make(first: int) -> None:
        # Of others than its own tables it needs to know nothing.
        base = head
        for at in range(made + first, commits, _AT_ONCE):
            if time.monotonic() > until:
                return
            base = _publish(context, pointers[str(tables[at % number])], base, at)
            if at % 1_000 == 0:
                progress(f"{at:,} of {commits:,} commits")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(make, range(_AT_ONCE)))
    head = catalog.get_ref(MAIN)
    branches = sum(1 for _ in catalog.list_refs())
    for at in range(branches, number):
        catalog.create_branch(f"dev/b{at:04}", head)
    return tables


def _publish(context: Context, pointer: TablePointer, head: Ref, at: int) -> Ref:
    started = _START + timedelta(minutes=at)
    run_id = f"{started:%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    file = source_file(run_id)
    event = Event(
        run=run_id,
        kind="ingest",
        tables=effects_on([str(pointer.table)], run_id, ((file.uri, file.version),)),
        branch=f"wap/{pointer.table}_{run_id}",
        audit="3 passed, 0 warned",
    )
    request = CommitRequest(
        branch=MAIN,
        base=head.hash,
        message=f"Publish {pointer.table} (10 rows)",
        puts=(pointer,),
        properties=as_properties(event),
    )
    return context.catalog.commit(request)


def measure(few: Scaled, many: Scaled, rounds: int, until: float) -> Iterator[Figure]:
    """Yield a figure for each command; those that list or count everything there is are only shown."""
    progress(f"{len(many.commits):,} commits, {len(many.tables):,} tables / {len(few.commits):,}, {len(few.tables):,}")
    for work in _COMMANDS.values():  # a server that has just started is slower
        _compared("", work, few, many, None, _WARM_UP)
    for works, limit, times in (
        (_COMMANDS, _LIMIT, rounds),
        (_TYPED, _LIMIT, rounds),
        (_GROWING, None, rounds),
        (_ONCE, None, 1),
    ):
        for name, work in works.items():
            if time.monotonic() > until:
                progress(f"no time left for: {name}")
                continue
            yield _compared(name, work, few, many, limit, times)


def _compared(name: str, work: _Work, few: Scaled, many: Scaled, limit: float | None, rounds: int) -> Figure:
    """Return the ratio of the fastest rounds; what else the machine does only makes the others slower."""
    fastest = [float("inf"), float("inf")]
    requests = [0, 0]
    began = time.monotonic()
    for number in count():
        if number >= rounds and (rounds == 1 or time.monotonic() - began > _LONG_ENOUGH_S):
            break
        for place, one in enumerate((few, many)):
            run = work(one)
            with _counting() as sent:
                started = time.perf_counter()
                run()
                fastest[place] = min(fastest[place], time.perf_counter() - started)
            requests[place] = sent[0]
    detail = f"{fastest[1] * 1000:.1f} ms / {fastest[0] * 1000:.1f} ms, {requests[1]:,} / {requests[0]:,} requests"
    return Figure(name, fastest[1] / fastest[0], limit, detail)


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count the requests to the catalog."""
    sent = [0]
    request = httpx.Client.request

    def counted(client: httpx.Client, *args: Any, **options: Any) -> httpx.Response:
        sent[0] += 1
        return request(client, *args, **options)

    with mock.patch.object(httpx.Client, "request", counted):
        yield sent


def _publishing(one: Scaled) -> Callable[[], object]:
    run = one.staging.stage(one.tables[0])
    one.context.journal.save(run)

    def work() -> None:
        sync(one.context, MAIN)
        publish(one.context, run, fresh=True)
        sync(one.context, MAIN)

    return work


def _branching(one: Scaled) -> Callable[[], object]:
    def work() -> None:
        one.lake.branches.create("mine")
        one.lake.branches.delete("mine")

    return work


def _tagging(one: Scaled) -> Callable[[], object]:
    commit = one.middle

    def work() -> None:
        one.lake.tags.create("mine", at=commit.hash)
        one.lake.tags.delete("mine")

    return work


def _looking(one: Scaled, at: Callable[[Commit], str | datetime]) -> Callable[[], object]:
    commit = one.middle
    return lambda: one.lake.table(str(one.tables[0]), at=at(commit))


def _fresh(one: Scaled) -> Callable[[], object]:
    journal = Journal(SqliteDatabase(Path(tempfile.mkdtemp(dir=one.home)) / "journal.db"))
    context = replace(one.context, journal=journal)
    return lambda: sync(context, MAIN)


def _typed(*words: str) -> _Work:
    def make(one: Scaled) -> Callable[[], object]:
        given = {"commit": one.middle.hash[:8], "table": str(one.tables[0])}
        command = [sys.executable, "-m", "lakegate", "--home", str(one.home), *(word.format(**given) for word in words)]
        catalog = one.lake.settings.catalog
        variables = {"LAKEGATE_CATALOG_URI": catalog.uri, "LAKEGATE_CATALOG_WAREHOUSE": catalog.warehouse}
        env = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        return lambda: subprocess.run(command, env=env, check=True, capture_output=True)

    return make


def _newest(one: Scaled) -> Run:
    return one.lake.runs(limit=1, status="published")[0]


_COMMANDS: Mapping[str, _Work] = {
    "publish": _publishing,
    "sync, nothing new": lambda one: lambda: sync(one.context, MAIN),
    "log": lambda one: lambda: list(one.lake.log(limit=_SHOWN, operations=False)),
    "log, by 8 digits": lambda one: lambda: list(one.lake.log(one.middle.hash[:8], limit=_SHOWN, operations=False)),
    "table at a commit": lambda one: _looking(one, lambda commit: commit.hash[:12]),
    "table at a time": lambda one: _looking(one, lambda commit: commit.time),
    "table": lambda one: lambda: one.lake.table(str(one.tables[0])),
    "runs": lambda one: lambda: one.lake.runs(limit=_SHOWN),
    "runs of a table": lambda one: lambda: one.lake.runs(table=str(one.tables[0]), limit=_SHOWN),
    "runs, rejected ingests": lambda one: lambda: one.lake.runs(status="rejected", kind="ingest", limit=_SHOWN),
    "one run": lambda one: lambda: one.lake.run(_newest(one).run_id),
    "metrics": lambda one: one.lake.maintenance.metrics,
    "branch create, delete": _branching,
    "recover": lambda one: one.lake.recover,
    "known files": lambda one: lambda: one.lake.files.known(str(one.tables[0]), ["file:///incoming/x.parquet"]),
}
_TYPED: Mapping[str, _Work] = {
    "$ lakegate log": _typed("log"),
    "$ lakegate log COMMIT": _typed("log", "{commit}"),
    "$ lakegate log -o json": _typed("log", "-o", "json"),
    "$ lakegate runs": _typed("runs"),
    "$ lakegate table show TABLE": _typed("table", "show", "{table}"),
    "$ lakegate table show TABLE --at COMMIT": _typed("table", "show", "{table}", "--at", "{commit}"),
    "$ lakegate admin journal status": _typed("admin", "journal", "status"),
}
_GROWING: Mapping[str, _Work] = {
    "log, with what each commit changed": lambda one: lambda: list(one.lake.log(limit=_SHOWN)),
    "journal status": lambda one: one.lake.maintenance.journal_status,
}
"""Calls that are known to cost more: by what Nessie keeps of all tables in each commit, or by what is counted."""
_ONCE: Mapping[str, _Work] = {
    "branches (all)": lambda one: one.lake.branches.list,
    "tag an older commit (of all tables)": _tagging,
    "tables (all)": lambda one: one.lake.tables,
    "a new journal": _fresh,
    "gc": lambda one: one.lake.maintenance.gc,
    "a new journal, with a checkpoint": _fresh,
    "gc, with a checkpoint": lambda one: one.lake.maintenance.gc,
    "journal rebuild, with a checkpoint": lambda one: one.lake.maintenance.rebuild_journal,
}


if __name__ == "__main__":
    main()
