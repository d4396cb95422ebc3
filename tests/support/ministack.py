"""A MiniStack of its own for tests: S3, SQS, Lambda and CloudFormation on the loopback interface, in its own folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakegate.local.ministack import MiniStack
from lakegate.progress import SilentNarrator


@contextmanager
def ministack() -> Iterator[MiniStack]:
    """Run one until the body ends; ``environment`` has the variables by which to use it."""
    with tempfile.TemporaryDirectory(prefix="lakegate-ministack-") as folder:
        server = MiniStack(Path(folder), SilentNarrator())
        server.start()
        try:
            yield server
        finally:
            server.stop()
