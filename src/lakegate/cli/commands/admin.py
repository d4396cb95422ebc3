"""Maintain and repair the lake; show metrics and settings."""

from __future__ import annotations

import sys

from lakegate.cli.admin.completion import completion
from lakegate.cli.admin.config import config
from lakegate.cli.admin.downstream import downstream
from lakegate.cli.admin.gc import gc
from lakegate.cli.admin.journal import journal
from lakegate.cli.admin.maintain import maintain
from lakegate.cli.admin.metrics import metrics
from lakegate.cli.admin.notify import notify
from lakegate.cli.admin.recover import recover
from lakegate.cli.admin.verify import verify
from lakegate.cli.admin.version import version
from lakegate.cli.app import group


@group(
    "admin",
    examples=("lakegate admin maintain", "lakegate admin verify --deep", "lakegate admin config"),
)
def admin() -> None:
    """Maintain and repair the lake; show metrics and settings."""


for one in (maintain, recover, verify, gc, journal, notify, downstream, metrics, config, completion, version):
    # The first line of its module says the same in fewer words than its help.
    one.short_help = str(sys.modules[f"lakegate.cli.admin.{one.name}"].__doc__).partition("\n")[0]
    admin.add_command(one)
