"""Who may write: the holder of an opening's token, on its branch, until the branch is sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from lakegate.credentials.openings import Claim, claim_in
from lakegate.gate.refusals import RefusedError
from lakegate.iceberg.metadata import Document
from lakegate.model.identifiers import TableIdentifier
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
    _noted: set[tuple[str, str]] = field(default_factory=set)

    def note_read(self, opening: Opening, table: TableIdentifier) -> None:
        """Remember that a writer has read a table. Its publish then fails if another run has changed that table."""
        self._note(opening, str(table), reads=[str(table)])

    def note_client(self, opening: Opening, client: str) -> None:
        """Remember what a client that wrote calls itself."""
        self._note(opening, f" {client}", client=client)

    def _note(self, opening: Opening, what: str, **use: Any) -> None:
        if (opening.opening_id, what) not in self._noted:
            self.openings.note_use(opening.opening_id, **use)
            self._noted.add((opening.opening_id, what))

    def admit(self, token: str) -> Opening:
        """Return the opening that a token belongs to.

        Raises:
            RefusedError: The token isn't ours (401), or its opening has ended (403).
        """
        claim = claim_in(token, self.key)
        if claim is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "NotAuthorizedException",
                "The bearer token is wrong.",
                {"WWW-Authenticate": 'Bearer realm="lakegate"'},
            )
        return self.require_open(claim)

    def require_open(self, claim: Claim | Opening) -> Opening:
        """Return an opening as it is now, if it may be written to.

        Raises:
            RefusedError: It has ended (403).
        """
        now = self.openings.get(claim.opening_id)
        if now is None or now.branch != claim.branch:
            raise ended(claim.branch, "there is no such opening (any more)")
        if now.is_sealed:
            raise ended(claim.branch, "the branch was sealed")
        if now.deadline <= datetime.now(UTC):
            raise ended(claim.branch, "its time is over")
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
