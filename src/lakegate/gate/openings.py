"""Who may write: the holder of an opening's token, on its branch, until the branch is sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from lakegate.credentials.openings import opening_in
from lakegate.gate.refusals import RefusedError
from lakegate.iceberg.metadata import Document
from lakegate.model.opening import Opening
from lakegate.ports import Openings

SHOWN: Final = ("gc.enabled", "write.data.path", "write.metadata.path")
"""Properties that writers are shown with values of the gate's own. They're never stored."""


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Knows openings by their tokens.

    Attributes:
        openings: All openings, as they are.
        key: The key that tokens are signed with.
    """

    openings: Openings
    key: bytes

    def admit(self, token: str) -> Opening:
        """Return the opening that a token belongs to.

        Raises:
            RefusedError: The token isn't ours (401), or its opening has ended (403).
        """
        claimed = opening_in(token, self.key)
        if claimed is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "NotAuthorizedException",
                "The bearer token is wrong.",
                {"WWW-Authenticate": 'Bearer realm="lakegate"'},
            )
        if claimed.deadline <= datetime.now(UTC):
            raise ended(claimed.branch, "its time is over")
        return self.require_open(claimed)

    def require_open(self, claimed: Opening) -> Opening:
        """Return an opening as it is now, if it may be written to.

        Raises:
            RefusedError: It has ended (403).
        """
        now = self.openings.get(claimed.opening_id)
        if now is None or now.branch != claimed.branch:
            raise ended(claimed.branch, "there is no such opening (any more)")
        if now.is_sealed:
            raise ended(claimed.branch, "the branch was sealed")
        if now.deadline <= datetime.now(UTC):
            raise ended(claimed.branch, "its time is over")
        return now


def ended(branch: str, why: str) -> RefusedError:
    """Return the error for a token whose opening has ended."""
    return RefusedError(
        HTTPStatus.FORBIDDEN,
        "ForbiddenException",
        f"This token can't write to {branch} any more: {why}. Open a branch again: lakegate gate open",
    )


def folder_of(opening: Opening) -> str:
    """Return the name of an opening's folders, below ``data`` and ``metadata`` of each table."""
    return opening.opening_id


def shown_properties(document: Document, opening: Opening) -> Mapping[str, str]:
    """Return the properties that a writer is shown besides a table's own.

    No writer deletes files, which other branches may need, and each opening's files go into folders of its own.
    """
    home = str(document["location"]).rstrip("/")
    folder = folder_of(opening)
    return {
        "gc.enabled": "false",
        "write.data.path": f"{home}/data/{folder}",
        "write.metadata.path": f"{home}/metadata/{folder}",
    }
