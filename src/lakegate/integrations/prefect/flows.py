"""One flow: files to one table, through write, audit and publish."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
from prefect import flow, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.concurrency._asyncio import ConcurrencySlotAcquisitionError
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.transactions import transaction

from lakegate.errors import AuditFailedError, InputError, LakegateError, RetryableError
from lakegate.integrations.prefect.report import sentence, told
from lakegate.integrations.prefect.steps import audit, open_lake, publish, stage_hooks, write
from lakegate.lake import IngestOptions
from lakegate.model.request import OnBusy, OnChanged, OnFailure, OnSameContent
from lakegate.model.run import Run

REJECTED = "Rejected"
"""Name of the failed state of a flow run whose audit failed."""


class CancelledInPrefectError(LakegateError):
    """The flow run was cancelled in Prefect, and nothing stopped this process."""

    code = "cancelled"


def run_id_of(flow_run_id: UUID | str | None) -> str:
    """Return the id of the run of a flow run of :func:`wap_flow`."""
    return f"prefect-{flow_run_id}"


@flow(name="lakegate-wap", flow_run_name="{table}", persist_result=False)
def wap_flow(
    table: str,
    path: str | list[str],
    branch: str | None = None,
    checks: list[str] | None = None,
    partition_by: list[str] | None = None,
    on_failure: OnFailure | None = None,
    on_changed: OnChanged | None = None,
    on_same_content: OnSameContent | None = None,
    on_busy: OnBusy | None = None,
    home: str | None = None,
    with_examples: bool = True,  # noqa: FBT001, FBT002 - a flow's parameters are given by name
    run_id: str | None = None,
) -> State[Any]:
    """Write files to a branch, audit them, and publish them to main, or not at all.

    The run is named after the flow run, ``prefect-<its id>``: retrying the flow run continues it. Tasks that fail with
    a retryable error are retried up to four times. Called from Python, it returns the run or raises what stopped it.

    Args:
        table: ``namespace.table``; created if it doesn't exist.
        path: Files, folders or patterns; Parquet or CSV.
        branch: New branch to write to. Default: one named after the run.
        checks: Checks of the batch, such as ``not_null(id)``, beside those of the table's settings.
        partition_by: Partitioning of a new table, such as ``days(pickup)``.
        on_failure: Keep or drop the branch of a rejected batch: ``keep`` or ``drop``. Default: the settings.
        on_changed: A file published before with other content: ``refuse``, ``append`` or ``replace``. Likewise.
        on_same_content: A file with the bytes of another one: ``append``, ``skip`` or ``refuse``. Likewise.
        on_busy: A file that another run is ingesting: ``wait`` for that run, or ``skip`` the file. Likewise.
        home: The project's folder, where the flow runs. Default: the nearest one upwards from the working folder.
        with_examples: Whether the report in Prefect shows failing rows.
        run_id: A suspended run of this table to resume instead of starting a new one.

    Returns:
        The flow run's last state: ``Published``, ``Skipped`` (nothing new), ``Rejected`` (a failed state), ``Failed``
        or ``Cancelled``.
    """
    if run_id is not None and (problem := _why_not(table, run_id, home)) is not None:
        return Failed(message=told(problem), data=problem)
    run_id = run_id or run_id_of(flow_run.get_id())
    options: IngestOptions = {
        "run_id": run_id,
        "branch": branch,
        "checks": checks or (),
        "partition_by": partition_by or (),
        "on_failure": on_failure,
        "on_changed": on_changed,
        "on_same_content": on_same_content,
        "on_busy": on_busy,
    }
    paths = [path] if isinstance(path, str) else path
    try:
        # A concurrency limit on this tag, if there is one, limits the steps that work on the table.
        with tags(f"lakegate:{table}"), transaction(logger=get_run_logger()) as steps:
            stage_hooks(steps, run_id, home)
            run = write(table, paths, options, home)
            if run.status == "staged":
                _require_wanted()
                run = audit(run_id, home, with_examples=with_examples)
                _require_wanted()
                run = publish(run_id, home, with_examples=with_examples)
    except LakegateError as error:
        return _given_up(run_id, home, error)
    except (httpx.HTTPError, PrefectException, ConcurrencySlotAcquisitionError) as error:
        return _given_up(run_id, home, _server_away(error))
    return _ended(run)


def _why_not(table: str, run_id: str, home: str | None) -> LakegateError | None:
    """Return why a run can't be resumed, if so: a mistake must not undo it."""
    try:
        with open_lake(home) as lake:
            run = lake.run(run_id)
    except LakegateError as error:
        return error
    if run.tables[:1] == (table,) and run.run_id == run_id:
        return None
    return InputError(
        f"Run {run.run_id} belongs to {run.table or 'a transaction'}, not to {table}; it was left unchanged.",
        hint=f"lakegate runs {run.run_id}",
        run_id=run_id,
        table=table,
    )


def _require_wanted() -> None:
    """Stop a flow run that was cancelled while no worker was there to stop its process."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(flow_run.get_id())).state
    except (httpx.HTTPError, PrefectException):
        return
    if state is not None and (state.is_cancelling() or state.is_cancelled()):
        raise CancelledInPrefectError("The flow run was cancelled; nothing was published.")


def _server_away(error: Exception) -> LakegateError:
    return RetryableError(
        f"Prefect's server didn't answer between two steps ({type(error).__name__}); the run was undone.",
        hint="Run it again.",
    )


def _given_up(run_id: str, home: str | None, error: LakegateError) -> State[Any]:
    """Return the last state of a flow run that an error stopped; its run may have been published all the same."""
    try:
        with open_lake(home) as lake:
            run = lake.run(run_id)
    except LakegateError:
        run = None
    if run is not None and run.status == "published":
        return _ended(run)
    if isinstance(error, CancelledInPrefectError):
        return Cancelled(message=told(error), data=error)
    return Failed(name=REJECTED if isinstance(error, AuditFailedError) else None, message=told(error), data=error)


def _ended(run: Run) -> State[Any]:
    return Completed(name=run.status.capitalize(), message=sentence(run), data=run)
