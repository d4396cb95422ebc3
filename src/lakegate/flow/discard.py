"""Discard: the branch goes, and with it all that was written to it."""

from __future__ import annotations

from lakegate.errors import InputError, NotFoundError
from lakegate.flow.rooms import Rooms
from lakegate.model.refs import Ref


def discard(rooms: Rooms, branch: str, *, target: str = "main", seen: Ref | None = None) -> bool:
    """Drop ``branch``. Its data files stay until they are collected; no reference reaches them.

    Args:
        rooms: The lake's rooms.
        branch: Its name.
        target: The branch that must not be dropped.
        seen: It is dropped only if it still stands there; by default wherever it stands.

    Returns:
        Whether there was a branch to drop.

    Raises:
        InputError: When ``branch`` is ``target``.
        ConflictError: When something was committed to the branch at this very moment, or since it was ``seen``.
    """
    if branch == target:
        raise InputError(
            f"'{branch}' is what everyone reads; it cannot be discarded.",
            hint="`lakegate branch list` shows the branches.",
            branch=branch,
        )
    try:
        ref = seen or rooms.catalog.get_ref(branch)
        if ref.kind != "branch":
            raise InputError(
                f"'{branch}' is not a branch.", hint="`lakegate branch list` shows the branches.", branch=branch
            )
        rooms.catalog.delete_ref(ref)
    except NotFoundError:
        return False
    return True
