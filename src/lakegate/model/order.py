"""What a user asks an ingest to do."""

from __future__ import annotations

from typing import Literal

from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier

OnFailure = Literal["keep", "drop"]
OnChanged = Literal["refuse", "append", "replace"]
"""What to do with a file whose path was published before with other content."""
OnBusy = Literal["wait", "skip"]
"""What to do with a file that another run is at."""


class IngestOrder(Value):
    """What a user asks an ingest to do, with the settings' defaults filled in.

    Attributes:
        wait_s: Seconds to wait for another run that is at the same file.
    """

    run_id: str
    table: TableIdentifier
    batch: Batch
    checks: tuple[Check, ...] = ()
    branch: str
    partition_by: tuple[str, ...] = ()
    target: str = "main"
    on_failure: OnFailure = "keep"
    on_changed: OnChanged = "refuse"
    on_busy: OnBusy = "wait"
    wait_s: float = 600.0
