"""An opening: a writer's time on a branch."""

from __future__ import annotations

from datetime import datetime

from lakegate.model.base import Value


class Opening(Value):
    """A writer's time on a branch, from when the branch is opened to when it's sealed.

    Attributes:
        opening_id: Identifies it over all time, as a run's id does. A branch's name may be used again.
        branch: The branch that may be written.
        base: Hash of the commit of ``main`` that the branch began at.
        deadline: When the opening ends by itself (aware).
        is_sealed: Whether the branch was closed to writers.
    """

    opening_id: str
    branch: str
    base: str
    deadline: datetime
    is_sealed: bool = False
