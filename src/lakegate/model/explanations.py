"""How an audit answered each check, and what that cost."""

from __future__ import annotations

from typing import Literal

from lakegate.model.base import Value

Method = Literal["manifest", "scan", "bitmaps in the scan", "bitmaps", "grouping", "join"]


class Explanation(Value):
    """How one check was answered.

    Attributes:
        check: The check in its canonical text.
        method: ``manifest``: from the metrics of data files. ``scan``: in the one pass over the rows. ``bitmaps``:
            a key proven unique, in that pass or in a job of its own. ``grouping``: rows counted by key. ``join``: keys
            looked up in other rows.
        reason: Why no cheaper way would do; ``None`` for the cheapest one.
        jobs: Spark jobs that the check took, those for its examples among them. The pass over the rows counts for each
            check that it answers.
        bytes: What the columns that the check names take in the data files, by the manifests; 0 when none was read,
            ``None`` when the manifests don't say.
    """

    check: str
    method: Method
    reason: str | None
    jobs: int
    bytes: int | None
