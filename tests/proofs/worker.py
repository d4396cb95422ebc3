"""A process that does batches: ``python -m proofs.worker HOME`` reads jobs from standard input and answers each.

A job is a line of JSON, and so is an answer. One process does many batches, so that the proofs measure those and not
how long Python takes to import things. What starts it is :class:`proofs.harness.Worker`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from lakegate.errors import LakegateError
from lakegate.lake import Lake, connect
from lakegate.model.request import OnBusy
from lakegate.model.run import Run
from lakegate.wap import failpoints
from proofs.faulty_catalog import bad_line
from support.e2e_support import trips


class Job(TypedDict, total=False):
    """One batch.

    Attributes:
        table: Table to ingest ``paths`` into; without one it is a transaction.
        paths: Files.
        checks: Checks of every table of the batch.
        key: Column by which ``paths`` are upserted; a row without ``passengers`` deletes the one with its key.
        on_busy: What to do with a file that another process is at.
        appends: What a transaction appends: first id and number of trips, by table.
        gate: Whether PyIceberg appends that through the gate instead, on a branch that is then sealed.
        quarantine: What to do with quarantined rows of the table: ``release``, ``fix`` or ``drop``.
        where: Which of them.
        changes: What ``fix`` changes.
        revert: Run to revert.
        rows: Rows to update by ``k``, or to insert, into ``table``.
        extend: Rows, table and ``k`` each, whose texts a transaction reads and puts ``word`` at their ends.
        restore: Commit at which to take ``table`` back.
        optimize: Table to compact.
        faults: Of a hundred calls to the catalog, how many go wrong from now on.
        seed: Which.
        fault: What is to happen to the process, and where (:mod:`lakegate.wap.failpoints`).
    """

    table: str
    paths: list[str]
    checks: list[str]
    key: str
    on_busy: OnBusy
    appends: dict[str, tuple[int, int]]
    gate: bool
    quarantine: str
    where: str
    changes: dict[str, str]
    revert: str
    rows: list[dict[str, Any]]
    extend: list[tuple[str, int]]
    word: str
    restore: str
    optimize: str
    faults: int
    seed: int
    fault: str


class Answer(TypedDict):
    """What became of a batch: the run's status, or ``error`` with the error's code and message; and what it read."""

    status: str
    run_id: str | None
    replayed: bool
    seconds: float
    found: list[str]
    code: str
    message: str


def main() -> None:
    """Answer jobs until there are no more."""
    home = Path(sys.argv[1])
    with connect(home) as lake:
        lake.runs(limit=1)
        _say({"pid": os.getpid()})
        for line in sys.stdin:
            job: Job = json.loads(line)
            os.environ[failpoints.VARIABLE] = job.get("fault", "")
            if "faults" in job:
                bad_line(lake, job["faults"], job["seed"])
            _say(_answer(lake, job))


def _answer(lake: Lake, job: Job) -> Answer:
    started = time.monotonic()
    answer = Answer(status="error", run_id=None, replayed=False, seconds=0.0, found=[], code="", message="")
    try:
        run = _do(lake, job, answer["found"])
    except LakegateError as error:
        run_id = error.context.get("run_id")
        answer["code"], answer["message"] = error.code, error.message
        answer["run_id"] = None if run_id is None else str(run_id)
    else:
        answer["status"], answer["run_id"] = run.status, run.run_id
        answer["replayed"] = run.publication is not None and bool(run.publication.replayed)
    answer["seconds"] = time.monotonic() - started
    return answer


def _do(lake: Lake, job: Job, found: list[str]) -> Run:  # noqa: PLR0911 - one for each kind of job
    match job:
        case {"revert": run_id}:
            return lake.revert(run_id)
        case {"restore": commit, "table": table}:
            return lake.restore_table(table, at=commit)
        case {"optimize": table}:
            return lake.maintenance.optimize(table)
        case {"gate": True, "appends": appends}:
            return _through_the_gate(lake, appends)
        case {"rows": rows, "table": table}:
            return lake.ingest(table, rows, mode="upsert", key=["k"])
        case {"extend": rows}:
            return _extend(lake, rows, job["word"], found)
        case {"quarantine": "drop"}:
            return lake.quarantine.drop(job["table"], where=job["where"])
        case {"quarantine": _}:
            changes = job.get("changes")
            return lake.quarantine.release(job["table"], where=job["where"], changes=changes, accept="as they are")
    return _ingest(lake, job) if "table" in job else _transact(lake, job)


def _ingest(lake: Lake, job: Job) -> Run:
    if "key" in job:
        return lake.ingest(
            job["table"], job["paths"], mode="upsert", key=[job["key"]], delete_when="passengers IS NULL"
        )
    checks, on_busy = job.get("checks", []), job.get("on_busy", "wait")
    return lake.ingest(job["table"], job["paths"], checks=checks, on_busy=on_busy, on_rejected="return")


def _transact(lake: Lake, job: Job) -> Run:
    with lake.transaction("proof") as tx:
        for table, (start, rows) in job["appends"].items():
            tx.append(table, trips(rows, start=start))
            tx.check(table, *job.get("checks", []))
    return tx.run


def _through_the_gate(lake: Lake, appends: Mapping[str, tuple[int, int]]) -> Run:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError

    try:
        with lake.gate("proof") as gate:
            catalog = load_catalog("gate", type="rest", uri=gate.uri, token=gate.token)
            for table, (start, rows) in appends.items():
                catalog.load_table(table).append(trips(rows, start=start))
    except (RESTError, CommitFailedException, CommitStateUnknownException) as error:
        raise LakegateError(f"The gate answered {error!r}, so nothing is sealed.") from error
    return gate.run


def _extend(lake: Lake, rows: Sequence[tuple[str, int]], word: str, found: list[str]) -> Run:
    with lake.transaction("proof") as tx:
        for table, key in rows:
            ((text,),) = tx.table(table).where(f"k = {key}").select("v").collect()
            found.append(text)
            tx.upsert(table, [{"k": key, "v": f"{text} {word}".strip()}], keys=["k"])
    return tx.run


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
