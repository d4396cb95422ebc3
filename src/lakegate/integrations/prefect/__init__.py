"""lakegate under Prefect 3: flows whose tasks are the steps of a run.

``wap_flow`` takes files through write, audit and publish, ``intake_flow`` does so for whatever is new,
``backfill_flow`` for what is old. All that makes them safe is beneath: each step is idempotent by run id, and a flow
run's id names its run, so a retried task, a flow run started again and a second deployment go on with what is there.

Deploy them by module path: ``lakegate.integrations.prefect:wap_flow``.

Raises:
    ConfigurationError: When something of it is first used, and Prefect is missing or of another version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakegate.integrations.extras import require_extra

if TYPE_CHECKING:
    from lakegate.integrations.prefect.announced import LANDED, announce, landed_trigger
    from lakegate.integrations.prefect.backfill import backfill_flow
    from lakegate.integrations.prefect.flows import wap_flow
    from lakegate.integrations.prefect.intake import intake_flow
    from lakegate.integrations.prefect.serving import deployments, serve_flows
    from lakegate.integrations.prefect.steps import audit, publish, write

__all__ = [
    "LANDED",
    "announce",
    "audit",
    "backfill_flow",
    "deployments",
    "intake_flow",
    "landed_trigger",
    "publish",
    "serve_flows",
    "wap_flow",
    "write",
]

_HOMES = {
    "LANDED": "announced",
    "announce": "announced",
    "audit": "steps",
    "backfill_flow": "backfill",
    "deployments": "serving",
    "intake_flow": "intake",
    "landed_trigger": "announced",
    "publish": "steps",
    "serve_flows": "serving",
    "wap_flow": "flows",
    "write": "steps",
}


def require_prefect() -> None:
    """Make sure that Prefect is there, in a version that these flows are proven with.

    Raises:
        ConfigurationError: When it is not.
    """
    require_extra("prefect", "prefect", "3.8.8", "3.9")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module '{__name__}' has no attribute {name!r}"
        raise AttributeError(msg)
    # Before Prefect is imported: of another version, that may fail in ways that say nothing to a user.
    require_prefect()
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
