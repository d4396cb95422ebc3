"""Tokens for writers: each belongs to one opening of one branch, and ends with it.

A token is readable text with a signature, so that every process of a lake that has the key knows it for its own, and
the token itself is stored nowhere. The key is in the journal, which all of them share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Final, NamedTuple
from uuid import UUID

from lakegate.model.opening import Opening

PREFIX: Final = "lakegate1."
"""What every token of a writer begins with."""


class Claim(NamedTuple):
    """What a token says it opens."""

    opening_id: str
    branch: str


def token_of(opening: Claim | Opening, key: bytes) -> str:
    """Return the token that lets a writer write to the branch of an opening."""
    body = _text(json.dumps([opening.opening_id, opening.branch]).encode())
    return f"{PREFIX}{body}.{_text(_mac(key, 'token', body))}"


def claim_in(token: str, key: bytes) -> Claim | None:
    """Return what a token opens; ``None`` if we didn't make the token.

    The opening may have ended since: :class:`~lakegate.ports.Openings` knows.

    Example:
        >>> token = token_of(Claim("r1", "wap/day"), b"key")
        >>> claim_in(token, b"key"), claim_in(token, b"other")
        (Claim(opening_id='r1', branch='wap/day'), None)
    """
    body, _, given = token.removeprefix(PREFIX).partition(".")
    expected = _text(_mac(key, "token", body))
    if not token.startswith(PREFIX) or not hmac.compare_digest(given.encode(), expected.encode()):
        return None
    return Claim(*json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))


def engine_token(key: bytes) -> str:
    """Return the token of lakegate's own Spark, which reads everything and writes all branches but ``main``."""
    return f"lakegate-engine.{_text(_mac(key, 'engine', ''))}"


def staged_uuid(opening: Opening, table: str, location: str, key: bytes) -> str:
    """Return the UUID of a table that an opening may create at ``location``, and nobody else anywhere else.

    So a table that was staged can be told from one that a writer made up, without storing anything.
    """
    made = _mac(key, "table", f"{opening.opening_id}\x00{table}\x00{location}")
    return str(UUID(bytes=made[:16], version=4))


def _mac(key: bytes, purpose: str, text: str) -> bytes:
    return hmac.new(key, f"lakegate {purpose}\0{text}".encode(), hashlib.sha256).digest()


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
