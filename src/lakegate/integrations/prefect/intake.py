"""Whatever is new below some paths, taken in by chunks: a flow for a schedule."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from lakegate.errors import ConfigurationError, EngineError, InputError, LakegateError
from lakegate.integrations.prefect.announced import begin_again
from lakegate.integrations.prefect.flows import REJECTED, run_id_of, wap_flow
from lakegate.integrations.prefect.report import told
from lakegate.integrations.prefect.steps import MAY_PASS, open_lake
from lakegate.lake import Lake
from lakegate.loading.file_outcomes import find_run
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, Intake, Scan
from lakegate.model.request import OnChanged, OnFailure, OnSameContent

_PATIENCE = 3
"""How many settling times a look waits for files that are just being written; the next schedule sees the others."""


@flow(name="lakegate-intake", persist_result=False)
def intake_flow(
    paths: str | list[str],
    table: str | None = None,
    routes: list[str] | None = None,
    checks: list[str] | None = None,
    on_failure: OnFailure | None = None,
    on_changed: OnChanged | None = None,
    on_same_content: OnSameContent | None = None,
    settle_s: float = 5.0,
    max_files: int = 100,
    home: str | None = None,
    announced: str | None = None,
    with_examples: bool = True,  # noqa: FBT001, FBT002 - a flow's parameters are given by name
) -> State[Any]:
    """Take in the files that are new below some paths, each chunk of them by a :func:`wap_flow` of its own.

    Which files were taken, rejected or given up is in lakegate's journal, so two of these at the same time, a schedule
    that overlaps itself, and a flow run that died do no harm: each file is published once.

    Args:
        paths: Files, folders, patterns, prefixes.
        table: Table that all of them go to; or else
        routes: patterns that say which: ``landing/{namespace}/{table}/*.parquet``.
        checks: Rules each chunk must keep, beside those of the tables' settings.
        on_failure: What becomes of a rejected chunk's branch: ``keep`` or ``drop``. Default: the settings.
        on_changed: A file published before with other content: ``refuse``, ``append`` or ``replace``. Likewise.
        on_same_content: A file with the bytes of another one: ``append``, ``skip`` or ``refuse``. Likewise.
        settle_s: Seconds for which a file must have been left unchanged.
        max_files: Files in a chunk, at most.
        home: The project's folder, where the flow runs.
        announced: The deployment that takes in announced files, ``lakegate-wap/NAME``: those of ``table``, or of all
            tables, that it lost are given to it again.
        with_examples: Whether the reports in Prefect show rows that fail.

    Returns:
        ``Completed`` with what became of the chunks, or ``Failed`` when the lake is away, or paths cannot be looked at.
    """
    given = {
        "checks": checks,
        "on_failure": on_failure,
        "on_changed": on_changed,
        "on_same_content": on_same_content,
        "on_busy": "skip",
    }
    listed = [paths] if isinstance(paths, str) else paths
    try:
        with open_lake(home) as lake:
            again = begin_again(lake, announced, table) if announced else 0
            intake = Intake(lake, listed, _routes(table, routes), settle_s=settle_s, max_files=max_files)
            ended = _take_all(lake, intake, settle_s, {**given, "home": home, "with_examples": with_examples})
    except LakegateError as error:
        return Failed(message=told(error), data=error)
    said = ", ".join(f"{count} {name.lower()}" for name, count in sorted(ended.items()))
    words = f"Chunks: {said}." if said else "Nothing new."
    return Completed(message=f"{words} Announced and begun again: {again}." if again else words, data=dict(ended))


def _routes(table: str | None, routes: list[str] | None) -> Routes:
    if (table is None) == (not routes):
        raise InputError("Give either a table that all files go to, or routes that say which.")
    return Routes(routes or ()) if table is None else Routes.to(table)


def _take_all(lake: Lake, intake: Intake, settle_s: float, parameters: dict[str, Any]) -> Counter[str]:
    ended: Counter[str] = Counter()
    deadline = time.monotonic() + _PATIENCE * settle_s
    while True:
        found = intake.scan()
        _log(found)
        for chunk in filter(intake.is_free, found.chunks):
            ended[_take(lake, intake, chunk, parameters)] += 1
        if found.chunks:
            continue
        if not found.settling or found.due_s is None or time.monotonic() + found.due_s > deadline:
            return ended
        time.sleep(found.due_s)


def _log(found: Scan) -> None:
    logger = get_run_logger()
    logger.info(
        "%d chunks to take, %d files settling, %d waiting, %d done.",
        *(len(found.chunks), found.settling, found.waiting, found.done),
    )
    for file, why in found.unrouted:
        logger.warning("%s: %s", file, why)


def _take(lake: Lake, intake: Intake, chunk: Chunk, parameters: dict[str, Any]) -> str:
    """Take one chunk in, with the run that was begun for it if there is one; return the name of the state it ended in.

    Raises:
        RetryableError: When the lake is away: the chunks to come would meet the same. An engine that fails at this one
            may do its work for others.
        OutcomeUnknownError: Likewise.
        ConfigurationError: When the settings are wrong.
    """
    # What is wrong with a chunk of several files is found file by file; nobody looks at the branch of all of them.
    given = parameters if chunk.alone else {**parameters, "on_failure": "drop"}
    state: State[Any] = wap_flow(
        table=chunk.table, path=list(chunk.uris), run_id=chunk.run_id, **given, return_state=True
    )
    # A completed state that comes from a busy server has no result; the journal says more than it could.
    result = None if state.is_completed() else state.result(raise_on_failure=False)
    if isinstance(result, ConfigurationError):
        raise result
    run = find_run(lake, chunk.run_id or run_id_of(state.state_details.flow_run_id))
    is_told_by_run = state.is_completed() or state.name == REJECTED
    intake.note(chunk, run, result if isinstance(result, LakegateError) and not is_told_by_run else None)
    if isinstance(result, MAY_PASS) and not isinstance(result, EngineError):
        raise result
    return state.name or "Failed"
