"""The flows as deployments of one process: on a schedule, and on events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from prefect import serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from lakegate.config import find_home
from lakegate.integrations.prefect.announced import landed_trigger
from lakegate.integrations.prefect.flows import wap_flow
from lakegate.integrations.prefect.intake import intake_flow
from lakegate.loading.routes import absolute

_AT_ONCE = 4
"""Flow runs of one process at the same time; the others wait."""


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
    """Return the deployment that looks for new files on a schedule, and the one that takes in announced files.

    A look that comes due while the one before is under way is cancelled: the one after it finds the same files. It also
    finds the announced files that no flow run took in.
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
    serve(*deployments(paths, **given), limit=_AT_ONCE)
