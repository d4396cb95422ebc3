"""OpenTelemetry spans and metrics, if its standard variables ask for them. Otherwise, nothing is loaded.

``OTEL_EXPORTER_OTLP_ENDPOINT`` enables both. ``OTEL_TRACES_EXPORTER`` and ``OTEL_METRICS_EXPORTER`` (``otlp`` or
``none``) control each, and ``OTEL_SDK_DISABLED`` disables all. In a program that has set up OpenTelemetry, its own
providers are used. A trace continues from ``TRACEPARENT``. Spans and metrics contain names, numbers and ids, but no
rows, values, messages or secrets.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakegate.model.run import Run
    from lakegate.telemetry.metrics import Observer
    from lakegate.telemetry.otel import Signal

_LOG = logging.getLogger(__name__)
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def wanted(signal: Signal) -> bool:
    """Return whether the standard variables ask for a signal.

    Example:
        >>> wanted("TRACES")
        False
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = os.environ.get(f"OTEL_{signal}_EXPORTER", "").lower()
    if exporters:
        return "otlp" in exporters.split(",")
    return any(os.environ.get(name) for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def run_span(run: Run) -> AbstractContextManager[Callable[[Run], None]]:
    """Trace this process's work on a run. The context is a function to call with the ended run."""
    otel = _load_if_wanted("TRACES")
    return nullcontext(lambda _: None) if otel is None else otel.run_span(run)


def step_span(name: str, run: Run) -> AbstractContextManager[None]:
    """Trace a step of a run."""
    otel = _load_if_wanted("TRACES")
    return nullcontext() if otel is None else otel.step_span(name, run)


def observer() -> Observer | None:
    """Return the function that receives each measurement; ``None`` if metrics are off."""
    otel = _load_if_wanted("METRICS")
    return None if otel is None else otel.observe


def flush() -> None:
    """Send pending spans and metrics, within a few seconds. Call it before a process ends."""
    otel = sys.modules.get("lakegate.telemetry.otel")
    if otel is not None:
        otel.flush()


def _load_if_wanted(signal: Signal) -> ModuleType | None:
    return _load() if wanted(signal) or _is_set_up_by_program(signal) else None


def _is_set_up_by_program(signal: Signal) -> bool:
    """Return whether this program has set up OpenTelemetry itself. If the SDK isn't loaded, it hasn't."""
    sdk = sys.modules.get("opentelemetry.sdk.trace" if signal == "TRACES" else "opentelemetry.sdk.metrics")
    if sdk is None:
        return False
    otel = _load()
    return otel is not None and bool(otel.is_set_up(signal))


@cache
def _load() -> ModuleType | None:
    try:
        from lakegate.telemetry import otel
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakegate"):
            raise
        # Not an error: the variables may be meant for other programs on this machine.
        _LOG.warning("OTEL_* variables are set, but %s isn't installed: pip install 'lakegate[metrics]'", error.name)
        return None
    return otel
