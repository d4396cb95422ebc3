"""How a refused commit is told, by whichever catalog refused it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakegate.errors import ConflictError

ConflictKind = Literal[
    "VALUE_DIFFERS",
    "KEY_EXISTS",
    "KEY_DOES_NOT_EXIST",
    "CONTENT_ID_DIFFERS",
    "PAYLOAD_DIFFERS",
    "NAMESPACE_ABSENT",
    "NAMESPACE_NOT_EMPTY",
    "NOT_A_NAMESPACE",
    "KEY_CONFLICT",
    "UNEXPECTED_HASH",
    "UNKNOWN",
]
"""The conflict types of Nessie's API v2 (``Conflict.ConflictType``)."""

_WORDS: dict[str, str] = {
    "VALUE_DIFFERS": "was changed",
    "KEY_EXISTS": "was created",
    "KEY_DOES_NOT_EXIST": "does not exist",
    "CONTENT_ID_DIFFERS": "was dropped and created anew",
    "PAYLOAD_DIFFERS": "became something else",
    "NAMESPACE_ABSENT": "(a namespace) does not exist",
    "NAMESPACE_NOT_EMPTY": "(a namespace) is not empty",
    "NOT_A_NAMESPACE": "is not a namespace",
}


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """One key that stood in the way of a commit."""

    key: str
    kind: str
    """A :data:`ConflictKind`, or what a newer server calls it."""

    def __str__(self) -> str:
        return f"{self.key} {_WORDS.get(self.kind, 'conflicts')}"


def commit_conflict(branch: str, base: str, conflicts: Sequence[KeyConflict], detail: str = "") -> ConflictError:
    """Return the error of a commit that ``conflicts`` stood in the way of.

    Its context has ``branch``, ``base``, ``tables`` (the keys, as text) and ``conflicts`` (key and kind as text).

    Args:
        branch: Branch that was committed to.
        base: Hash the commit was computed from.
        conflicts: The keys concerned; may be empty when the catalog names none.
        detail: The catalog's own words, used when it names no key.
    """
    told = "; ".join(str(conflict) for conflict in conflicts) or detail or "the catalog gave no reason"
    return ConflictError(
        f"Branch '{branch}' changed after commit {base[:12]}: {told}.",
        hint="Nothing was committed. Take the branch's new head, check again what moved, and commit on top of it.",
        branch=branch,
        base=base,
        tables=[conflict.key for conflict in conflicts],
        conflicts=[f"{conflict.key}: {conflict.kind}" for conflict in conflicts],
    )


def moved_reference(name: str, expected: str, actual: str | None = None) -> ConflictError:
    """Return the error of a reference that no longer stands where it was seen.

    Args:
        name: Branch or tag.
        expected: Hash it was expected at.
        actual: Hash it stands at, when known.
    """
    now = f"; it is at {actual[:12]}" if actual else ""
    return ConflictError(
        f"'{name}' is no longer at commit {expected[:12]}{now}.",
        hint="Something else moved it meanwhile. Look at it with 'lakegate log', then try again.",
        ref=name,
        expected=expected,
        actual=actual,
    )
