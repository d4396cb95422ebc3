"""Keys for the object store that a writer is lent if it can't have its requests signed (DuckDB, Trino).

They're a role's, narrowed to what :mod:`~lakegate.gate.signing` signs: reads in the warehouse, and writes into the
folders of the writer's opening. Keys can't forbid that a writer overwrites its own objects, nor end at the seal, so
they're lent for an hour at most, and only to clients that ask for them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request

from lakegate.config import StorageSettings
from lakegate.gate.openings import folder_of
from lakegate.gate.signing import SIGNING, Signer
from lakegate.iceberg.metadata import Document
from lakegate.model.locations import canonical
from lakegate.model.opening import Opening
from lakegate.storage.s3 import RoleKeys, S3Role

_SHORTEST_S: Final = 900
"""STS lends none for less."""
_LONGEST_S: Final = 3_600
"""What every role allows, also to somebody who has assumed another one to ask."""
_LONGEST_NAME = 64


def lender_for(warehouse: str, storage: StorageSettings, signer: Signer | None) -> Lender | None:
    """Return what lends keys for the store of a warehouse; ``None`` if that isn't on S3, or no role is configured.

    Raises:
        ConfigurationError: The configuration for S3 is invalid.
    """
    role = storage.s3.writer_role
    if signer is None or role is None:
        return None
    return Lender(S3Role(storage.s3, role), warehouse, signer.place, partition=role.split(":")[1])


class Lender:
    """Lends keys to writers. Thread-safe.

    Args:
        warehouse: Root of the tables' files, ``s3://…``.
        place: Settings with which clients find the store.
        partition: The part of AWS that the role belongs to, such as ``aws``.
    """

    def __init__(self, role: S3Role, warehouse: str, place: Mapping[str, str], *, partition: str) -> None:
        self._role = role
        self._bucket, _, folder = canonical(warehouse).removeprefix("s3:/").partition("/")
        self._folder = f"{folder}/" if folder else ""
        self._place = place
        self._partition = partition
        self._lock = threading.Lock()
        self._lent: dict[str, tuple[datetime, RoleKeys]] = {}

    def lent(self, opening: Opening, location: str) -> Document:
        """Return the members of a ``LoadTableResult`` that give a writer keys for the table there.

        Raises what :meth:`S3Role.keys` does.
        """
        keys = self._keys(opening)
        config = {
            **self._place,
            "s3.access-key-id": keys.access_key,
            "s3.secret-access-key": keys.secret_key,
            "s3.session-token": keys.session_token,
            "s3.session-token-expires-at-ms": str(int(keys.expires.timestamp() * 1000)),
        }
        # Trino finds keys in the table's own configuration only, and DuckDB only beside it.
        return {"config": {**config, SIGNING: "false"}, "storage-credentials": [{"prefix": location, "config": config}]}

    def _keys(self, opening: Opening) -> RoleKeys:
        """Return keys of which more than half the time is left."""
        with self._lock:
            now = datetime.now(UTC)
            self._lent = {key: one for key, one in self._lent.items() if one[0] > now}
            if opening.opening_id not in self._lent:
                left = int((opening.deadline - now).total_seconds())
                seconds = min(max(left, _SHORTEST_S), _LONGEST_S)
                name = re.sub(r"[^\w+=,.@-]", "-", f"lakegate-{opening.opening_id}", flags=re.ASCII)[:_LONGEST_NAME]
                keys = self._role.keys(name, self._policy(opening), seconds)
                self._lent[opening.opening_id] = (now + timedelta(seconds=seconds / 2), keys)
            return self._lent[opening.opening_id][1]

    def _policy(self, opening: Opening) -> Mapping[str, Any]:
        bucket = f"arn:{self._partition}:s3:::{self._bucket}"
        inside, own = _literal(self._folder), _literal(folder_of(opening))
        return {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{bucket}/{inside}*"},
                {
                    "Effect": "Allow",
                    "Action": "s3:ListBucket",
                    "Resource": bucket,
                    "Condition": {"StringLike": {"s3:prefix": f"{inside}*"}},
                },
                {
                    "Effect": "Allow",
                    "Action": "s3:PutObject",
                    "Resource": [f"{bucket}/{inside}*/{kind}/{own}/*" for kind in ("data", "metadata")],
                },
            ],
        }


def _literal(text: str) -> str:
    """Return text as a policy has it, in which some characters stand for others."""
    return re.sub(r"[*?$]", r"${\g<0>}", text)


def asks_for_keys(request: Request) -> bool:
    """Return whether a client wants keys, and can't have its requests signed."""
    ways = {one.strip().lower() for one in request.headers.get("x-iceberg-access-delegation", "").split(",")}
    return "vended-credentials" in ways and "remote-signing" not in ways
