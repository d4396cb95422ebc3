"""Who owns a run, on real Nessie, between real processes: owners that oversleep, concurrent processes, interrupts.

Each owner is the program itself, stopped (SIGSTOP) at a point of the flow until its lease is over, or until another has
done its work, and then let go on.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import ConflictError, RetryableError
from lakegate.lake import Lake
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run
from support import warm
from support.e2e_support import Cli, let_go
from support.lakes import components_of
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

LEASE_S = 2.0
# The real program, to which Ctrl-C comes while its commit is on the way.
INTERRUPTED = """
import os, signal, sys, time
from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.cli.main import main

commit = NessieCatalog.commit

def interrupted(self, request):
    if request.branch == "main":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
    return commit(self, request)

NessieCatalog.commit = interrupted
sys.argv = ["lakegate", *sys.argv[1:]]
main()
"""


class World:
    """A table of ids, and processes that work on it."""

    def __init__(self, lake: Lake, home: Path, namespace: str, folder: Path) -> None:
        self.lake = lake
        self.cli = Cli(home)
        self.table = f"{namespace}.trips"
        self.folder = folder

    def file(self, number: int) -> Path:
        path = self.folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        return path

    def add(self, number: int) -> Run:
        return self.lake.ingest(self.table, self.file(number), checks=["not_null(id)"])

    def ids(self) -> list[int]:
        found = self.lake.table(self.table).to_arrow()
        return sorted(value.as_py() for value in found.column("id"))

    def runs(self) -> list[str]:
        """Return kind and status of all runs of the table, the oldest first, and check that each says the truth."""
        runs = list(self.lake.runs(table=self.table))[::-1]
        commits = {commit.properties.get("lakegate.run-id") for commit in self.lake.log("main", limit=200)}
        for run in runs:
            assert (run.run_id in commits) == (run.status in ("published", "reverted")), run
        return [f"{run.kind} {run.status}" for run in runs]

    @contextmanager
    def stopped(self, point: str, *words: str | Path, lease_s: float = LEASE_S) -> Iterator[subprocess.Popen[str]]:
        """Start a command that is stopped at ``point`` for as long as the body takes, and longer than its lease."""
        with self.cli.stopped(point, *words, lease_s=lease_s) as owner:
            if lease_s == LEASE_S:
                wait_until(self.has_lost_its_lease, what="the end of its lease")
            yield owner

    def has_lost_its_lease(self) -> bool:
        return any(self.table in run.tables for run in components_of(self.lake).journal.abandoned())

    def ingest(self, number: int) -> tuple[str | Path, ...]:
        return "ingest", self.table, self.file(number), "-c", "not_null(id)", "--branch", f"{self.table}/{number}"

    def branch(self, number: int) -> str:
        return f"{self.table}/{number}"

    def recover(self) -> list[str]:
        """Settle what is abandoned, and return what became of this table's runs: others may be among them."""
        return [run.status for run in self.lake.recover() if self.table in run.tables]


def goes_on(owner: subprocess.Popen[str]) -> tuple[int, str]:
    code, _, err = let_go(owner)
    return code, err


@pytest.fixture
def world(lake: Lake, home: Path, namespace: str, tmp_path: Path) -> World:
    lake.recover()  # of what other tests left, some might wait for a publish lock below
    return World(lake, home, namespace, tmp_path)


def test_an_owner_that_slept_past_its_lease(world: World) -> None:
    """Whoever settles the run and however late its owner wakes up: what is said of it is so."""
    world.add(0)
    # Taken over after its audit: both would publish it, and the catalog takes one commit.
    with world.stopped("before-commit", *world.ingest(1)) as owner:
        assert world.recover() == ["published"]
        code, err = goes_on(owner)
    assert code == 0, err
    assert world.ids() == [0, 1]

    # Taken over while it was writing.
    with world.stopped("after-branch", *world.ingest(2)) as owner:
        assert world.recover() == ["failed"]
        code, err = goes_on(owner)
    assert (code, "lost its lease" in err, "Traceback" in err) == (3, True, False), err
    assert world.branch(2) not in [ref.name for ref in world.lake.branches.list()]
    assert world.ids() == [0, 1]

    # An undoing, which nobody can finish but its owner.
    first = world.lake.runs(table=world.table)[-1]
    with world.stopped("before-commit", "revert", first.run_id) as owner:
        assert world.recover() == []  # while its owner has the publish lock
        code, err = goes_on(owner)
    assert (code, "lost its lease" in err) == (3, True), err
    assert world.recover() == ["failed"]
    assert world.ids() == [0, 1]
    assert world.runs() == ["ingest published", "ingest published", "ingest failed", "revert failed"]
    assert world.add(1).status == "skipped"


def test_discarding_while_it_is_published(world: World) -> None:
    world.add(0)
    with world.stopped("before-commit", *world.ingest(1), lease_s=60) as owner:
        with pytest.raises(RetryableError, match=r"Another process is working on run .*\. Branch .* wasn't discarded"):
            world.lake.discard(world.branch(1))
        assert goes_on(owner)[0] == 0
    assert world.ids() == [0, 1]

    with world.stopped("before-commit", *world.ingest(2)) as owner:
        with pytest.raises(RetryableError, match=r"may be publishing run .* right now"):
            world.lake.discard(world.branch(2))
        code, err = goes_on(owner)
    assert (code, "lost its lease" in err) == (3, True), err
    discarded = world.lake.discard(world.branch(2))
    assert discarded is not None
    assert discarded.status == "discarded"
    assert world.ids() == [0, 1]

    with world.stopped("after-publish", *world.ingest(3)) as owner:
        discarded = world.lake.discard(world.branch(3))
        assert discarded is not None
        assert discarded.status == "published"
        assert goes_on(owner)[0] == 0
    assert world.ids() == [0, 1, 3]
    assert world.runs() == ["ingest published", "ingest published", "ingest discarded", "ingest published"]


@pytest.mark.parametrize("act", ["discard", "cancel", "recover"])
def test_nothing_is_called_off_while_its_commit_is_on_its_way(world: World, act: str) -> None:
    """An owner that is stopped behind its last look at its lease commits whenever it wakes up."""
    world.add(0)
    first = world.add(1)
    words = ("revert", first.run_id) if act == "recover" else (*world.ingest(2), "-c", "unique(id, scope='table')")
    with world.stopped("confirmed", *words) as owner:
        run = world.lake.runs(table=world.table, limit=1)[0]
        if act == "recover":
            assert world.recover() == []
        else:
            with pytest.raises(RetryableError, match=f"may be publishing run {run.run_id} right now"):
                world.lake.discard(world.branch(2)) if act == "discard" else world.lake.cancel_run(run.run_id)
        code, err = goes_on(owner)
    assert code == 0, err
    assert world.ids() == ([0] if act == "recover" else [0, 1, 2])
    assert world.lake.run(run.run_id).status == "published"
    assert len(world.runs()) == 3


def test_ctrl_c_while_the_commit_is_on_its_way(world: World) -> None:
    run = world.add(0)
    before = next(iter(world.lake.log("main", limit=1))).hash

    def interrupted(*words: str | Path) -> None:
        program = [*warm.python(), "-c", INTERRUPTED, "--home", str(world.cli.home), *map(str, words)]
        done = subprocess.run(program, capture_output=True, text=True, check=False, env=world.cli.environment())
        assert (done.returncode, "had been published already" in done.stderr) == (130, True), done.stderr

    interrupted(*world.ingest(1))
    assert world.ids() == [0, 1]
    interrupted("revert", run.run_id)
    assert world.ids() == [1]
    interrupted("table", "restore", world.table, "--at", before)
    assert world.ids() == [0]
    assert sorted(world.runs()) == sorted(
        ["ingest published", "ingest reverted", "revert published", "restore published"]
    )


def test_a_conflict_whose_commit_was_made_is_no_concurrent_commit(
    world: World, components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy makes it that sends a commit twice: the second one conflicts with the first."""
    commit = type(components.catalog).commit
    answered: list[str] = []

    def twice(catalog: Any, request: CommitRequest) -> Ref:
        made = commit(catalog, request)
        if request.branch == "main":
            answered.append(made.hash)
            raise ConflictError("It changed.")
        return made

    monkeypatch.setattr(type(components.catalog), "commit", twice)
    first = world.add(0)
    at = answered[-1]
    second = world.add(1)
    reverted = world.lake.revert(first.run_id)
    assert world.ids() == [1]
    restored = world.lake.restore_table(world.table, at=at)
    assert world.ids() == [0]
    for run, made in zip((first, second, reverted, restored), answered, strict=True):
        assert (run.status, run.publication and run.publication.commit) == ("published", made), json.dumps(answered)
