"""The function's log: one JSON object per line, each with the id of the call, and no secret in any."""

from __future__ import annotations

import logging
import os
import sys

from lakegate.narration import LogNarrator

_SECRETS_OF_AWS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST_SECRET = 16
"""Characters: AWS's own have more; a stand-in's may be an ordinary word."""


def open_log() -> LogNarrator:
    """Return the narrator of a function, and let lakegate's own log go the same way.

    Secrets of the settings are hidden from when they are read out (:func:`lakegate.narration.hide`).
    """
    secrets = [os.environ.get(name, "") for name in _SECRETS_OF_AWS]
    hidden = tuple(text for text in secrets if len(text) >= _SHORTEST_SECRET)
    narrator = LogNarrator(sys.stdout, hidden=hidden, command="aws_lambda")
    log = logging.getLogger("lakegate")
    log.addHandler(narrator.handler())
    log.setLevel(logging.INFO)
    # Lambda's own handler would write each line a second time.
    log.propagate = False
    return narrator
