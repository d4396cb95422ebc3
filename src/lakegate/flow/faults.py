"""Named points in the flow where a test can stop the world.

In production :func:`reach` compares one variable and returns.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

FaultPoint = Literal[
    "before-stage",
    "after-branch",
    "after-stage",
    "after-audit",
    "before-publish",
    "after-publish",
    "after-branch-delete",
]

VARIABLE = "LAKEGATE_FAULT"
"""``<point>:kill`` (SIGKILL) or ``<point>:interrupt`` (SIGINT, as Ctrl-C sends it)."""


def reach(point: FaultPoint) -> None:
    """Do to this process what :data:`VARIABLE` asks for at ``point``."""
    wanted, _, action = os.environ.get(VARIABLE, "").partition(":")
    if wanted == point:
        os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGINT)
