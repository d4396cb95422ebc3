"""Tokens for writers: each belongs to one opening of one branch, and ends with it.

A token is readable text with a signature, so that every process of a lake that has the key knows it for its own, and
nothing needs to be stored for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from lakegate.config import HOME_NAME
from lakegate.model.opening import Opening
from lakegate.private_files import private_folder

PREFIX: Final = "lakegate1."
"""What every token of a writer begins with."""

_KEY_NAME = "gate.key"
_KEY_BYTES = 32


def signing_key(home: Path) -> bytes:
    """Return the key of the lake in ``home``, from a file that only its owner may read. It's made on first use."""
    path = private_folder(home / HOME_NAME) / _KEY_NAME
    if not path.exists():
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
            stream.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(draft, path)  # unless another process was faster
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes()


def token_of(opening: Opening, key: bytes) -> str:
    """Return the token that lets a writer write to an opening's branch."""
    claims = {"id": opening.opening_id, "branch": opening.branch, "until": int(opening.deadline.timestamp())}
    body = _text(json.dumps(claims, separators=(",", ":")).encode())
    return f"{PREFIX}{body}.{_text(_mac(key, 'token', body))}"


def opening_in(token: str, key: bytes) -> Opening | None:
    """Return the opening that a token names, without its base; ``None`` if we didn't make the token.

    It may have ended since: :class:`~lakegate.ports.Openings` knows.
    """
    body, _, given = token.removeprefix(PREFIX).partition(".")
    expected = _text(_mac(key, "token", body))
    if not token.startswith(PREFIX) or not hmac.compare_digest(given.encode(), expected.encode()):
        return None
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    deadline = datetime.fromtimestamp(claims["until"], tz=UTC)
    return Opening(opening_id=claims["id"], branch=claims["branch"], base="", deadline=deadline)


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
