"""Discard: the branch goes, and with it all that was written to it."""

from __future__ import annotations

from lakegate.errors import InputError, NotFoundError
from lakegate.flow.rooms import Rooms


def discard(rooms: Rooms, branch: str, *, target: str = "main") -> bool:
    """Drop ``branch``. Its data files stay until they are collected; no reference reaches them.

    Returns:
        Whether there was a branch to drop.

    Raises:
        InputError: When ``branch`` is ``target``.
        ConflictError: When something was committed to the branch at this very moment.
    """
    if branch == target:
        raise InputError(
            f"'{branch}' is what everyone reads; it cannot be discarded.",
            hint="`lakegate branch list` shows the branches.",
            branch=branch,
        )
    try:
        ref = rooms.catalog.get_ref(branch)
    except NotFoundError:
        return False
    if ref.kind != "branch":
        raise InputError(
            f"'{branch}' is not a branch.", hint="`lakegate branch list` shows the branches.", branch=branch
        )
    rooms.catalog.delete_ref(ref)
    return True
