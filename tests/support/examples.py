"""How many examples Hypothesis tries: few in each run of the tests, many in ``make prove``."""

from __future__ import annotations

import os

_TIMES = int(os.environ.get("LAKEGATE_TEST_EXAMPLES", "1"))


def examples(number: int, proven: int | None = None) -> int:
    """Return ``number``, or ``proven`` times what ``LAKEGATE_TEST_EXAMPLES`` says; by default ``number`` times that."""
    return number if _TIMES == 1 else (proven or number) * _TIMES
