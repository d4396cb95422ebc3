"""A process that runs DBOS workflows: ``python -m proofs.dbos_worker HOME`` reads jobs and answers each.

Its first job launches DBOS, which recovers what the process before it left pending. It can be killed where the lake's
own fault points are, and around what DBOS writes down of each step. What starts it is :mod:`proofs.dbos_matrix`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict
from unittest.mock import patch

from dbos import DBOS
from dbos._sys_db import SystemDatabase

from lakegate.config import load_settings
from lakegate.errors import InputError
from lakegate.integrations.dbos import program, workflows
from lakegate.integrations.dbos.configuration import load_configuration
from lakegate.integrations.dbos.workflows import Order
from lakegate.lake import Lake, connect
from lakegate.wap import failpoints


class Job(TypedDict, total=False):
    """One workflow.

    Attributes:
        run_id: Its id; a job with nothing else waits for the one that was recovered.
        order: What it is asked to do.
        fault: Where the process is killed: a fault point of the lake's, or ``before`` or ``after`` what DBOS writes
            down of a step or of the workflow's end, such as ``before:lakegate.audit`` or ``after:end``.
        breaks: Whether its publish fails for good.
    """

    run_id: str
    order: Order
    fault: str
    breaks: bool


class Answer(TypedDict):
    """What DBOS says of a workflow: its status, and its result or what it failed with."""

    workflow: str
    outcome: dict[str, Any] | None
    error: str


_fault = ""


def main() -> None:
    """Answer jobs until there are no more."""
    home = Path(sys.argv[1])
    workflows.use_lake(lambda narrator: connect(home, narrator=narrator))
    _install()
    configuration = load_configuration(None, home=home, journal=load_settings(home).journal)
    connect(home).close()
    _say({"pid": os.getpid()})
    line = sys.stdin.readline()
    if line:
        _prepare(json.loads(line))
        with program.launched(configuration):
            while line:
                _say(_answer(_prepare(json.loads(line))))
                line = sys.stdin.readline()


def _prepare(job: Job) -> Job:
    global _fault  # noqa: PLW0603 - what DBOS calls has no other way to know
    _fault = job.get("fault", "")
    os.environ[failpoints.VARIABLE] = f"{_fault}:kill"
    _break_publish(breaks=job.get("breaks", False))
    return job


def _answer(job: Job) -> Answer:
    run_id = job.get("run_id")
    if run_id is None:
        return Answer(workflow="", outcome=None, error="")
    outcome, error = None, ""
    try:
        if "order" in job:
            outcome = program.run_one(job["order"], run_id)
        else:
            outcome = DBOS.retrieve_workflow(run_id).get_result()
    except Exception as problem:  # noqa: BLE001 - the matrix judges
        error = f"{type(problem).__name__}: {problem}"
    status = DBOS.get_workflow_status(run_id)
    return Answer(
        workflow="none" if status is None else status.status,
        outcome=None if outcome is None else dict(outcome),
        error=error,
    )


def _break_publish(*, breaks: bool) -> None:
    _BROKEN_PUBLISH.stop()
    if breaks:
        _BROKEN_PUBLISH.start()


_BROKEN_PUBLISH = patch.object(Lake, "publish_run", side_effect=InputError("The proof breaks this publish."))


def _install() -> None:
    """Come by the worker's own fault points where DBOS begins a step, writes down its end, and the workflow's."""
    _around("record_operation_result", lambda words: str(words[0]["function_name"]))
    _around("update_workflow_outcome", lambda _: "end")
    _around("check_operation_execution", lambda words: f"start-of-{words[2]}")


def _around(method: str, name: Callable[[tuple[Any, ...]], str]) -> None:
    real = getattr(SystemDatabase, method)

    def wrapped(self: SystemDatabase, *words: Any, **more: Any) -> Any:
        point = name(words)
        _reach(f"before:{point}")
        result = real(self, *words, **more)
        _reach(f"after:{point}")
        return result

    setattr(SystemDatabase, method, wrapped)


def _reach(point: str) -> None:
    if _fault == point:
        os.kill(os.getpid(), signal.SIGKILL)


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
