"""Executor ids: one for each process of this machine, and the same ones again after a restart.

At its start DBOS takes every pending workflow of its own executor id for one that died. With one id for two processes
the second would begin the work of the first again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from dbos import DBOS
from filelock import FileLock, Timeout

from lakegate.orchestrators.dbos.queues import QUEUES


@contextmanager
def held_executor_id(locks: Path, base: str) -> Iterator[str]:
    """Hold the first of ``base``, ``base.2``, ``base.3``… that no living process of this machine holds."""
    locks.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for number in count(1):
            name = base if number == 1 else f"{base}.{number}"
            if _held(stack, locks, name):
                yield name
                return


def recover_dead(locks: Path, base: str) -> list[str]:
    """Have the launched DBOS go on with what processes left pending whose executor id nobody holds now.

    Returns:
        The ids of those that are on no queue of ours.
    """
    recovered: list[str] = []
    pending = DBOS.list_workflows(status="PENDING", app_version=DBOS.application_version, load_input=False)
    for workflow in pending:
        name = workflow.executor_id or ""
        if name == DBOS.executor_id or not _is_of(base, name):
            continue
        with ExitStack() as stack:
            if _held(stack, locks, name):
                queue = workflow.queue_name if workflow.queue_name in QUEUES else None
                DBOS.resume_workflow(workflow.workflow_id, queue_name=queue)
                recovered += [] if queue else [workflow.workflow_id]
    return recovered


def _is_of(base: str, name: str) -> bool:
    return name == base or (name.startswith(f"{base}.") and name.removeprefix(f"{base}.").isdecimal())


def _held(stack: ExitStack, locks: Path, name: str) -> bool:
    try:
        stack.enter_context(FileLock(locks / f"dbos-{name}.lock", timeout=0))
    except Timeout:
        return False
    return True
