"""The function's log: one JSON object per line, each with the id of the call, and no secret in any."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

from lakegate.config import Settings
from lakegate.credentials.secret import Secret
from lakegate.errors import LakegateError
from lakegate.narration import LogNarrator

_SECRETS_OF_AWS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST_SECRET = 4


def open_log(settings: Settings) -> LogNarrator:
    """Return the narrator of a function, and let lakegate's own log go the same way."""
    narrator = LogNarrator(sys.stdout, hidden=tuple(_secrets(settings)), command="aws_lambda")
    log = logging.getLogger("lakegate")
    log.addHandler(narrator.handler())
    log.setLevel(logging.INFO)
    # Lambda's own handler would write each line a second time.
    log.propagate = False
    return narrator


def _secrets(settings: Settings) -> Iterator[str]:
    texts = [os.environ.get(name, "") for name in _SECRETS_OF_AWS]
    for reference in _references(settings.model_dump(mode="json")):
        with suppress(LakegateError):
            texts.append(Secret(reference, setting="").value())
    yield from (text for text in texts if len(text) >= _SHORTEST_SECRET)


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str) and value.startswith(("env:", "file:/")):
        yield value
