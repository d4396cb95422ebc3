"""The states of a run, and which state may follow which.

A run is *open* until its state says how it ended. It has *ended* when what is left to do then is done, too (a branch to
drop, claims to release): from that moment on it has a time of its end. *Suspended* is no state: it means that nobody
holds the lease of an open run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

RunStatus = Literal[
    "created", "planned", "staged", "audited", "published", "skipped", "rejected", "failed", "discarded", "reverted"
]
"""``created``: it's known, and nothing is decided. ``planned``: what to write is decided. ``staged``: it's written,
where nobody reads it. ``audited``: each of its tables passed its audit, or somebody accepted that it didn't; recovery
publishes it. The others say how it ended."""

OPEN: Final[tuple[RunStatus, ...]] = ("created", "planned", "staged", "audited")
"""The states in which something is left to do, in order."""

_ENDS: frozenset[RunStatus] = frozenset({"failed", "discarded"})

TRANSITIONS: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    # A transaction needs no plan, because its body writes.
    "created": _ENDS | {"planned", "staged", "skipped"},
    # Reverts, restores and changes of metadata add no row, so there's nothing to audit.
    "planned": _ENDS | {"created", "staged", "published", "skipped", "rejected"},
    # Back to `planned`: rows are quarantined, and the others written again.
    "staged": _ENDS | {"created", "planned", "audited", "rejected", "skipped"},
    # Back to `staged`: there are more checks now. Back to how it had ended: its branch couldn't be published by name.
    "audited": _ENDS | {"created", "staged", "published", "rejected"},
    # A branch that is kept can be audited again, and published by name.
    "rejected": frozenset({"staged", "audited", "discarded"}),
    # A run that failed may be tried again under the same id.
    "failed": frozenset({"created", "planned", "staged", "audited", "rejected", "skipped", "discarded"}),
    "skipped": frozenset(),
    # Its branch couldn't be dropped. Or a branch made from it is published by name.
    "discarded": frozenset({"created", "planned", "staged", "audited", "rejected", "failed", "skipped"}),
    "published": frozenset({"reverted", "discarded"}),
    "reverted": frozenset({"published", "discarded"}),
}
"""The states that may follow each state. Beside these, a run of whatever state is ``published`` once its commit is in
the history of its target, and ``discarded`` when the target has lost that commit."""


def may_follow(before: RunStatus | None, after: RunStatus) -> bool:
    """Return whether a run may change from one state to another; ``None``: the run is new.

    Example:
        >>> may_follow("staged", "audited"), may_follow("staged", "published"), may_follow("staged", "staged")
        (True, False, True)
    """
    return before is None or before == after or after in TRANSITIONS[before]


if frozenset(get_args(RunStatus)) != TRANSITIONS.keys():
    raise AssertionError("each state has its transitions")
