"""lakegate under Prefect 3: flows whose tasks are the steps of a run.

``wap_flow`` writes, audits and publishes files, ``intake_flow`` ingests new files, ``backfill_flow`` historical ones.
Each step is idempotent by run id, and a flow run's id names its run, so a retried task, a restarted flow run and a
second deployment continue the same run.

Deploy them by module path: ``lakegate.integrations.prefect:wap_flow``.

Raises:
    ConfigurationError: On first use, if Prefect is missing or its version unsupported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakegate.integrations import require_extra

if TYPE_CHECKING:
    from lakegate.integrations.prefect.flows import backfill_flow, wap_flow
    from lakegate.integrations.prefect.intake import LANDED, announce, deployments, intake_flow, landed_trigger
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
    "wap_flow",
    "write",
]


def require_prefect() -> None:
    """Make sure that a supported version of Prefect is installed."""
    require_extra("prefect", "prefect", "3.8.8", "3.9")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module '{__name__}' has no attribute {name!r}"
        raise AttributeError(msg)
    # Before Prefect is imported: an unsupported version may fail with an unhelpful error.
    require_prefect()
    for module in ("steps", "flows"):
        if hasattr(found := import_module(f"{__name__}.{module}"), name):
            return getattr(found, name)
    return getattr(import_module(f"{__name__}.intake"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
