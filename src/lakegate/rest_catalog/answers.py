"""What the API answers when there is no result: Iceberg's error object, and what it is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from lakegate.errors import EngineError, LakegateError, RetryableError

RETRY_AFTER_S = 5
"""Seconds after which a client should ask again when the catalog or the warehouse is unavailable."""

_LONGEST_NAME = 300


class RefusedError(Exception):
    """A request that gets no result.

    Args:
        kind: Iceberg's name for it, such as ``NoSuchTableException``; its clients raise what they call so.
        message: A sentence for people. It names nothing that the client didn't ask for.
    """

    def __init__(self, status: HTTPStatus, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the error as a response."""
        error = {"message": self.message, "type": self.kind, "code": int(self.status)}
        return json_response({"error": error}, self.status, self.headers)


def json_response(value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return Response(content, status, headers, media_type="application/json")


def bad_request(message: str) -> RefusedError:
    """Return the error of a request that makes no sense."""
    return RefusedError(HTTPStatus.BAD_REQUEST, "BadRequestException", message)


def no_table(name: str) -> RefusedError:
    """Return the error of a table that isn't there."""
    return RefusedError(HTTPStatus.NOT_FOUND, "NoSuchTableException", f"Table does not exist: {_clipped(name)}")


def no_namespace(name: str) -> RefusedError:
    """Return the error of a namespace that isn't there."""
    message = f"Namespace does not exist: {_clipped(name)}"
    return RefusedError(HTTPStatus.NOT_FOUND, "NoSuchNamespaceException", message)


def not_published(prefix: str) -> RefusedError:
    """Return the error of a prefix that names no published state: the same, whether or not a branch has the name."""
    return RefusedError(
        HTTPStatus.NOT_FOUND,
        "NoSuchWarehouseException",
        f"'{_clipped(prefix)}' names no published state. Use main, tag:NAME or commit:HASH; a tag or commit must be in "
        "the history of main.",
    )


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def read_only() -> RefusedError:
    """Return the error of a request that isn't about reading tables."""
    return RefusedError(
        HTTPStatus.FORBIDDEN,
        "ForbiddenException",
        "This catalog is read-only: it lists and loads published tables, and does nothing else. To change a table, "
        "use lakegate.",
    )


def unavailable(message: str, retry_after_s: int = RETRY_AFTER_S) -> RefusedError:
    """Return the error of something that is unavailable for the moment."""
    headers = {"Retry-After": str(retry_after_s)}
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException", message, headers)


def explained(error: LakegateError) -> RefusedError:
    """Return what a client may know about an error of ours. The log has the rest: it may name addresses and files."""
    if isinstance(error, EngineError):
        return unavailable("The warehouse can't be read at the moment. Try again.")
    if isinstance(error, RetryableError):
        return unavailable("The catalog behind this server doesn't answer. Try again.")
    return internal()


def internal(message: str = "The server failed.") -> RefusedError:
    """Return the error of whatever else went wrong here."""
    return RefusedError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", f"{message} The server's log says more."
    )
