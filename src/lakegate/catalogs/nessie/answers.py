"""From what Nessie answers, or fails to answer, to lakegate's errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

import httpx
from pydantic import ValidationError

from lakegate.catalogs.conflicts import KeyConflict, commit_conflict, moved_reference
from lakegate.catalogs.nessie.models import NessieError
from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import quote

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_LONGEST_MESSAGE = 500
_ACTUAL_HASH = re.compile(r"but at '([0-9a-f]+)'")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, in words, for messages.

    Attributes:
        task: What it was to do, after "cannot": ``list branches and tags``.
        ref: Branch, tag or hash concerned.
        hash: Commit that was expected or read at.
        commits: Whether it is a commit, whose fate must never be guessed.
    """

    task: str
    ref: str | None = None
    hash: str | None = None
    commits: bool = False


def key_text(elements: tuple[str, ...]) -> str:
    """Return a content key as text; parts that are not plain names stand in backticks.

    Example:
        >>> key_text(("nyc", "trips")), key_text(("nyc", "odd.name"))
        ('nyc.trips', 'nyc.`odd.name`')
    """
    return ".".join(part if _is_plain(part) else quote(part) for part in elements)


def _is_plain(part: str) -> bool:
    return part.replace("-", "").replace("_", "").isalnum() and part.isascii()


def no_answer(error: httpx.HTTPError, request: Request, server: str) -> LakegateError:
    """Return the error for a request that got no answer.

    Args:
        error: What the connection said.
        request: What was asked.
        server: The catalog's address.
    """
    reason = _first_line(str(error)) or type(error).__name__
    if request.commits and not isinstance(error, _NOT_SENT):
        return _outcome_unknown(request, server, f"the connection was lost before an answer came ({reason})")
    what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "does not answer"
    return CatalogUnavailableError(
        f"The catalog at {server} {what} ({reason}); cannot {request.task}.",
        hint="Check 'lakegate status'; start the local stack with 'lakegate up', or correct catalog.uri.",
        uri=server,
        ref=request.ref,
    )


def failure(response: httpx.Response, request: Request, server: str) -> LakegateError:
    """Return the error for an answer that is not a success.

    Args:
        response: The answer, with a status outside 2xx.
        request: What was asked.
        server: The catalog's address.
    """
    status = response.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _refused(response, request, server)
    if response.is_redirect:
        target = response.headers.get("location", "").split("?")[0].split("@")[-1]
        return not_nessie(server, f"it redirects to {target or 'another address'}")
    told = _read(response)
    if response.is_server_error or status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT):
        return _overloaded(status, told, request, server)
    if told is None:
        return not_nessie(server, f"HTTP {status} without Nessie's error object")
    return _told(told, request, server)


def not_nessie(server: str, reason: str) -> ConfigurationError:
    """Return the error for an address at which something else than Nessie's API v2 answers."""
    return ConfigurationError(
        f"There is no Nessie API v2 at {server}: {reason}.",
        hint="Set catalog.uri to the address that ends in /api/v2, for example http://127.0.0.1:19120/api/v2.",
        uri=server,
    )


def unreadable(request: Request, server: str, reason: str) -> LakegateError:
    """Return the error for a success whose body is not what Nessie would send."""
    if request.commits:
        return _outcome_unknown(request, server, f"the answer cannot be read ({reason})")
    return not_nessie(server, reason)


def _told(told: NessieError, request: Request, server: str) -> LakegateError:
    message = _first_line(told.message).rstrip(".")
    context = {"ref": request.ref, "hash": request.hash, "nessie_error": told.error_code}
    if told.error_code == "REFERENCE_CONFLICT":
        return _conflict(told, message, request)
    if told.error_code == "REFERENCE_ALREADY_EXISTS":
        return AlreadyExistsError(
            f"Cannot {request.task}: a branch or tag of this name exists.",
            hint="Choose another name, or delete the old one first.",
            **context,
        )
    if told.status == HTTPStatus.NOT_FOUND:
        return NotFoundError(
            f"Cannot {request.task}: {message}.",
            hint="'lakegate branch list' shows what exists.",
            **context,
        )
    if request.commits and "content ID" in told.message:
        # Nessie looks at the ids in the request before it looks at what changed: a key that came, went or was made
        # anew between reading and committing shows as a bad request.
        return commit_conflict(request.ref or "", request.hash or "", (), message)
    return InputError(
        f"The catalog refuses to {request.task}: {message}.",
        hint="Check the names given." if told.status == HTTPStatus.BAD_REQUEST else None,
        uri=server,
        **context,
    )


def _conflict(told: NessieError, message: str, request: Request) -> ConflictError:
    conflicts = told.error_details.conflicts if told.error_details else ()
    if request.commits:
        keys = [
            KeyConflict(key_text(conflict.key.elements), conflict.conflict_type or "UNKNOWN")
            for conflict in conflicts
            if conflict.key is not None
        ]
        return commit_conflict(request.ref or "", request.hash or "", keys, message)
    actual = _ACTUAL_HASH.search(message)
    return moved_reference(request.ref or "", request.hash or "", actual[1] if actual else None)


def _refused(response: httpx.Response, request: Request, server: str) -> ConfigurationError:
    status = response.status_code
    reason, hint = "does not allow this", "Ask who runs the catalog to allow it to the user of this token."
    if status == HTTPStatus.UNAUTHORIZED:
        reason = "does not accept the token" if "Authorization" in response.request.headers else "wants a token"
        hint = "Set catalog.token to a valid token by reference, for example env:NESSIE_TOKEN, or catalog.oauth2_*."
    return ConfigurationError(
        f"The catalog at {server} {reason} (HTTP {status}); cannot {request.task}.",
        hint=hint,
        uri=server,
        ref=request.ref,
        status=status,
    )


def _overloaded(status: int, told: NessieError | None, request: Request, server: str) -> LakegateError:
    reason = f"HTTP {status}" + (f": {_first_line(told.message)}" if told else "")
    if request.commits and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _outcome_unknown(request, server, f"the answer was an error of the server ({reason})")
    return CatalogUnavailableError(
        f"The catalog at {server} cannot serve now ({reason}); cannot {request.task}.",
        hint="Try again; 'lakegate status' tells how the catalog is.",
        uri=server,
        ref=request.ref,
    )


def _outcome_unknown(request: Request, server: str, reason: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether the commit to '{request.ref}' was made is unknown: {reason}.",
        hint=f"Look for it with 'lakegate log {request.ref}'.",
        uri=server,
        branch=request.ref,
        base=request.hash,
    )


def _read(response: httpx.Response) -> NessieError | None:
    try:
        return NessieError.model_validate_json(response.content)
    except ValidationError:
        return None


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"
