"""What clients are told when they don't get what they asked for: errors as Iceberg's REST API has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from lakegate.errors import EngineError, LakegateError, RetryableError

RETRY_AFTER_S = 5
"""Seconds after which clients should retry while the catalog or the warehouse is unavailable."""

_MAX_NAME_LENGTH = 300


class RefusedError(Exception):
    """An error response.

    Args:
        kind: Iceberg's name of the error, such as ``NoSuchTableException``, which clients map to their exceptions.
        message: A sentence for people. It reveals nothing that the client didn't name.
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
    """Return the error for a malformed request."""
    return RefusedError(HTTPStatus.BAD_REQUEST, "BadRequestException", message)


def commit_failed(message: str) -> RefusedError:
    """Return the error for a commit that somebody else was faster than: clients read the table again, and retry."""
    return RefusedError(HTTPStatus.CONFLICT, "CommitFailedException", message)


def no_table(name: str) -> RefusedError:
    """Return the error for a missing table."""
    return RefusedError(HTTPStatus.NOT_FOUND, "NoSuchTableException", f"Table doesn't exist: {_clipped(name)}")


def no_namespace(name: str) -> RefusedError:
    """Return the error for a missing namespace."""
    message = f"Namespace doesn't exist: {_clipped(name)}"
    return RefusedError(HTTPStatus.NOT_FOUND, "NoSuchNamespaceException", message)


def not_published(prefix: str) -> RefusedError:
    """Return the error for a prefix that names no published state. It doesn't reveal whether a branch has the name."""
    return RefusedError(
        HTTPStatus.NOT_FOUND,
        "NoSuchWarehouseException",
        f"'{_clipped(prefix)}' names no published state. Use main, tag:NAME or commit:HASH; a tag or commit must be in "
        "the history of main.",
    )


def _clipped(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"


def read_only() -> RefusedError:
    """Return the error for a request that doesn't read tables."""
    return RefusedError(
        HTTPStatus.FORBIDDEN,
        "ForbiddenException",
        "This catalog is read-only: it only lists and loads published tables. To change a table, use lakegate.",
    )


def already_exists(what: str, name: str) -> RefusedError:
    """Return the error for a name that is taken."""
    return RefusedError(HTTPStatus.CONFLICT, "AlreadyExistsException", f"{what} exists already: {_clipped(name)}")


def not_empty(name: str) -> RefusedError:
    """Return the error for a namespace that can't be dropped."""
    message = f"Namespace isn't empty: {_clipped(name)}"
    return RefusedError(HTTPStatus.CONFLICT, "NamespaceNotEmptyException", message)


def not_supported(message: str) -> RefusedError:
    """Return the error for what can be asked of other catalogs, but not of this one."""
    return RefusedError(HTTPStatus.NOT_ACCEPTABLE, "UnsupportedOperationException", message)


def not_writable(prefix: str, branch: str) -> RefusedError:
    """Return the error for a write to another state than the writer's branch."""
    return RefusedError(
        HTTPStatus.FORBIDDEN,
        "ForbiddenException",
        f"This token writes to {branch}, not to '{_clipped(prefix)}'. What is on the branch gets to main by an audit: "
        "lakegate publish",
    )


def unavailable(message: str, retry_after_s: int = RETRY_AFTER_S) -> RefusedError:
    """Return the error for a temporary outage."""
    headers = {"Retry-After": str(retry_after_s)}
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException", message, headers)


def public_error(error: LakegateError) -> RefusedError:
    """Return the error to show clients for one of ours, which may name addresses and files."""
    if isinstance(error, EngineError):
        return unavailable("The warehouse can't be read at the moment. Try again.")
    if isinstance(error, RetryableError):
        return unavailable("The catalog behind this server doesn't answer. Try again.")
    return internal_error()


def internal_error(message: str = "The server failed.") -> RefusedError:
    """Return the error for any other failure of this server."""
    return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", f"{message} See the server's log.")
