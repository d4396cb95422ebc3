"""What a request's path and token say."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from lakegate.gate.refusals import bad_request
from lakegate.model.opening import Opening

_SEPARATOR = "\x1f"


def opening_of(request: Request) -> Opening | None:
    """Return the opening whose token the request carries; ``None`` if it carries none."""
    found: Opening | None = getattr(request.state, "opening", None)
    return found


def text_of(request: Request, parameter: str) -> str:
    """Return a part of the request's path, decoded."""
    try:
        return unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise bad_request("The path isn't UTF-8.") from None


def prefix_of(request: Request) -> str:
    """Return the published state that the request's prefix names. Some clients encode it again."""
    prefix = text_of(request, "prefix")
    return unquote(prefix) if "%" in prefix else prefix


def namespace_of(levels: Any) -> tuple[str, ...]:
    """Return the levels of a namespace as bodies spell it."""
    if not isinstance(levels, list):  # text is a sequence, too
        raise bad_request("A namespace is a list of names.")
    return tuple(levels)


def namespace_in(text: str) -> tuple[str, ...]:
    """Return the levels of a namespace as paths and queries spell it."""
    return tuple(text.split(_SEPARATOR)) if text else ()
