"""New files, ingested chunk by chunk: a flow for a schedule, and its deployment beside that for announced files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from prefect import flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, State
from prefect.deployments.runner import RunnerDeployment
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed
from prefect.types.entrypoint import EntrypointType

from lakegate.config import find_home
from lakegate.errors import ConfigurationError, EngineError, InputError, LakegateError
from lakegate.integrations.prefect.announced import begin_again, landed_trigger
from lakegate.integrations.prefect.flows import REJECTED, run_id_of, wap_flow
from lakegate.integrations.prefect.report import told
from lakegate.integrations.prefect.steps import MAY_PASS, open_lake
from lakegate.lake import Lake
from lakegate.loading.file_outcomes import find_run
from lakegate.loading.routes import Routes, absolute
from lakegate.loading.scan import Chunk, Intake, Scan
from lakegate.model.request import OnChanged, OnFailure, OnSameContent

_PATIENCE = 3
"""How many settling times to wait for files that are being written; the next flow run finds the rest."""
_CONCURRENCY = 4
"""Maximum number of concurrent flow runs in a process that serves."""


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
    """Ingest new files, each chunk of them by a :func:`wap_flow` of its own.

    The journal records which files were published, rejected or given up. So two of these flow runs at the same time, or
    one that died, do no harm: each file is published once.

    Args:
        paths: Files, folders, patterns or prefixes.
        table: Table of all files; or else
        routes: patterns that say which: ``landing/{namespace}/{table}/*.parquet``.
        checks: Checks of each chunk, beside those of the tables' settings.
        on_failure: Keep or drop the branch of a rejected chunk: ``keep`` or ``drop``. Default: the settings.
        on_changed: A file published before with other content: ``refuse``, ``append`` or ``replace``. Likewise.
        on_same_content: A file with the bytes of another one: ``append``, ``skip`` or ``refuse``. Likewise.
        settle_s: Seconds for which a file must stay unchanged before it is ingested.
        max_files: Maximum number of files in a chunk.
        home: The project's folder, where the flow runs.
        announced: The deployment that ingests announced files, ``lakegate-wap/NAME``. Those that it lost are announced
            to it again: of ``table``, or of all tables.
        with_examples: Whether the reports in Prefect show failing rows.

    Returns:
        ``Completed`` with the number of chunks by outcome; ``Failed`` if the lake is unavailable or a path can't be
        listed.
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
    return Completed(message=f"{words} Announced files restarted: {again}." if again else words, data=dict(ended))


def _routes(table: str | None, routes: list[str] | None) -> Routes:
    if (table is None) == (not routes):
        raise InputError("Pass either a table that all files go to, or routes that say which.")
    return Routes(routes or ()) if table is None else Routes.to(table)


def _take_all(lake: Lake, intake: Intake, settle_s: float, parameters: dict[str, Any]) -> Counter[str]:
    ended: Counter[str] = Counter()
    deadline = time.monotonic() + _PATIENCE * settle_s
    while True:
        found = intake.scan()
        _log_scan(found)
        for chunk in filter(intake.is_free, found.chunks):
            ended[_take(lake, intake, chunk, parameters)] += 1
        if found.chunks:
            continue
        if not found.settling or found.due_s is None or time.monotonic() + found.due_s > deadline:
            return ended
        time.sleep(found.due_s)


def _log_scan(found: Scan) -> None:
    logger = get_run_logger()
    logger.info(
        "%d chunks to ingest, %d files being written, %d to be retried, %d done.",
        *(len(found.chunks), found.settling, found.waiting, found.done),
    )
    for file, why in found.unrouted:
        logger.warning("%s: %s", file, why)


def _take(lake: Lake, intake: Intake, chunk: Chunk, parameters: dict[str, Any]) -> str:
    """Ingest a chunk, resuming its suspended run if there is one; return the name of the flow run's last state.

    Raises:
        RetryableError: The lake is unavailable, so other chunks would fail, too. (An engine that fails with this one
            may succeed with others.)
        OutcomeUnknownError: Likewise.
        ConfigurationError: The settings are wrong.
    """
    # After a failure, the files of a chunk are ingested one by one, and nobody looks at the branch of all of them.
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


def deployments(
    paths: Sequence[str],
    *,
    table: str | None,
    routes: list[str] | None,
    name: str,
    interval_s: float,
    checks: list[str],
    on_failure: str | None,
    home: str | None,
) -> list[RunnerDeployment]:
    """Return the deployment that looks for new files on a schedule, and the one that ingests announced files.

    A flow run of the schedule that is due while another one is running is cancelled: the next one finds the same files.
    It also finds announced files that no flow run ingested.

    Args:
        paths: Files, folders, patterns or prefixes.
        table: Table of all files; or else
        routes: patterns that say which.
        name: Name of both deployments.
        interval_s: Seconds between two flow runs of the schedule.
        checks: Checks beside those of the tables' settings.
        on_failure: Keep or drop the branch of a rejected chunk. Default: the settings.
        home: The project's folder.
    """
    folder = str(Path(home).absolute() if home else find_home())
    shared: dict[str, Any] = {"home": folder, "checks": checks or None, "on_failure": on_failure}
    one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    made = [
        intake_flow.to_deployment(
            name,
            parameters={
                **shared,
                "paths": [absolute(path) for path in paths],
                "table": table,
                "routes": None if routes is None else [absolute(route) for route in routes],
                "announced": f"{wap_flow.name}/{name}",
            },
            interval=interval_s,
            concurrency_limit=one_at_a_time,
            entrypoint_type=EntrypointType.MODULE_PATH,
        ),
        wap_flow.to_deployment(
            name,
            parameters=shared,
            triggers=[landed_trigger(table, **shared)],
            entrypoint_type=EntrypointType.MODULE_PATH,
        ),
    ]
    return cast("list[RunnerDeployment]", made)


def serve_flows(paths: Sequence[str], **given: Any) -> None:
    """Serve :func:`deployments` until the process is stopped."""
    serve(*deployments(paths, **given), limit=_CONCURRENCY)
