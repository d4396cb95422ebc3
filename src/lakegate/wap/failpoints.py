"""Failpoints: named points of write–audit–publish where a test can stop the process.

In production :func:`reach` compares one variable and returns.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

FaultPoint = Literal[
    "after-claim",
    "before-stage",
    "after-branch",
    "after-stage",
    "after-audit",
    "before-publish",
    "before-commit",
    "after-publish",
    "after-branch-delete",
]
ConfirmedPoint = Literal["confirmed"]
"""Right before the commit, when nobody can cancel the run any more."""
ClosePoint = Literal["before-close"]
"""When a run's state says that it isn't published, before what is left to do then."""
AfterwardsPoint = Literal["after-end", "before-send", "after-send"]
"""Points after the run's outcome is final: once it's recorded, and before and after events are sent downstream."""

QuarantinePoint = Literal["after-quarantine", "after-leaving-out", "after-split"]
"""Points between the steps of quarantining rows, which only a batch with failing rows reaches."""

VARIABLE = "LAKEGATE_FAULT"
"""``<point>:kill`` (SIGKILL), ``<point>:interrupt`` (SIGINT, as Ctrl-C sends it) or ``<point>:pause`` (SIGSTOP)."""

POINTS: tuple[FaultPoint, ...] = get_args(FaultPoint)

_SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "pause": signal.SIGSTOP}


def reach(point: FaultPoint | ConfirmedPoint | ClosePoint | AfterwardsPoint | QuarantinePoint) -> None:
    """Kill, interrupt or pause this process if :data:`VARIABLE` names ``point``."""
    wanted, _, action = os.environ.get(VARIABLE, "").partition(":")
    if wanted == point:
        os.kill(os.getpid(), _SIGNALS.get(action, signal.SIGINT))
