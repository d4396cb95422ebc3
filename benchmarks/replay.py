"""A publish with replay against a plain Nessie merge, and against itself on larger tables and longer histories.

All is prepared outside the measurement: a run is staged and audited, and then another one published to its table, so
that it has to be replayed. The merge is that of a branch which appended to a table that nobody else touched, the only
kind that Nessie can do while ``main`` moves. Both drop their branch afterwards, which is measured, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from benchmarks.harness import Figure, Prepare, prepared
from benchmarks.past import Past
from benchmarks.staging import Staging
from lakegate.context import Context
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.run import Run
from lakegate.wap.publish import publish

APPENDS = 50


def against_merge(context: Context, staging: Staging, nessie_uri: str, rounds: int) -> Iterator[Figure]:
    """Yield a publish with replay against a merge."""
    table, disjoint = staging.create("bench.replayed"), staging.create("bench.disjoint")
    with httpx.Client(base_url=f"{nessie_uri}/") as nessie:
        medians = prepared(
            rounds,
            {
                "merge": _merge(context, staging, nessie, disjoint, table),
                "replay": _replay(context, staging, table),
            },
        )
    yield _figure("publish with replay / Nessie merge", medians["replay"], medians["merge"], 3.0, "branch dropped")


def by_size(context: Context, staging: Staging, rounds: int) -> Iterator[Figure]:
    """Yield a publish to a table of 10,000 data files against one of 100, both written by as many appends."""
    small = staging.create("bench.files_100", appends=[100 // APPENDS] * APPENDS)
    large = staging.create("bench.files_10000", appends=[10_000 // APPENDS] * APPENDS)
    medians = prepared(rounds, {"small": _replay(context, staging, small), "large": _replay(context, staging, large)})
    yield _figure(
        "publish with replay, 10,000 files / 100", medians["large"], medians["small"], 1.2, f"{APPENDS} appends each"
    )


def by_history(few: Past, many: Past, staging: Staging, rounds: int) -> Iterator[Figure]:
    """Yield a publish to a target with 5,000 commits against one with 10."""
    contestants = {}
    for name, past in (("few", few), ("many", many)):
        table = staging.create(f"bench.replayed_{name}", target=past.target)
        contestants[name] = _replay(past.context, staging, table, past.target)
    medians = prepared(rounds, contestants)
    yield _figure("publish with replay, 5,000 commits / 10", medians["many"], medians["few"], 1.2, "on the target")


def _figure(name: str, this: float, that: float, limit: float, detail: str) -> Figure:
    return Figure(name, this / that, limit, f"{this * 1000:.1f} ms / {that * 1000:.1f} ms, {detail}")


def _replay(context: Context, staging: Staging, table: TableIdentifier, target: str = MAIN) -> Prepare:
    def prepare() -> Any:
        run, concurrent = (staging.stage(table, target=target) for _ in range(2))
        assert not publish(context, concurrent, fresh=True).replayed
        return partial(_publish, context, run)

    return prepare


def _publish(context: Context, run: Run) -> None:
    publication = publish(context, run, fresh=True)
    assert publication.replayed == run.tables
    assert not publication.branch_left


def _merge(
    context: Context, staging: Staging, nessie: httpx.Client, table: TableIdentifier, other: TableIdentifier
) -> Prepare:
    def prepare() -> Any:
        run, concurrent = staging.stage(table), staging.stage(other)
        publish(context, concurrent, fresh=True)
        return partial(_merge_branch, nessie, run.branch, run.staged[0].head, context.catalog.get_ref(MAIN).hash)

    return prepare


def _merge_branch(nessie: httpx.Client, branch: str, head: str, main: str) -> None:
    body = {"fromRefName": branch, "fromHash": head}
    merged = nessie.post(f"trees/{MAIN}@{main}/history/merge", json=body).raise_for_status().json()
    assert merged["wasSuccessful"]
    assert merged["wasApplied"]
    nessie.delete(f"trees/{quote(branch, safe='')}@{head}", params={"type": "BRANCH"}).raise_for_status()
