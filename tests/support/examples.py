"""How many examples Hypothesis tries: few in each run of the tests, many in ``make prove``."""

from __future__ import annotations

import os

_TIMES = int(os.environ.get("LAKEGATE_TEST_EXAMPLES", "1"))


def examples(number: int) -> int:
    """Return ``number``, times what ``LAKEGATE_TEST_EXAMPLES`` says."""
    return number * _TIMES
