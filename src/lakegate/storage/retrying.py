"""Trying again what the libraries of the stores do not repeat by themselves: answers that break off in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakegate.errors import StorageUnavailableError

ATTEMPTS = 6
"""How often a request is sent before it is given up, waiting up to 20 s in between."""
LONGEST_WAIT_S = 20.0
_T = TypeVar("_T")


class CutError(StorageUnavailableError):
    """An answer broke off, or the store asks to be left alone for a moment."""


def retried(work: Callable[[], _T]) -> _T:
    """Return what ``work`` returns, called again, with pauses, when it raises :class:`CutError`.

    Raises:
        CutError: When it raises so again and again.
    """
    from tenacity import (  # noqa: PLC0415 - slow to import, and only for those who read
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        wait_exponential_jitter,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(CutError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=0.1, max=LONGEST_WAIT_S),
        reraise=True,
    )
    return retrying(work)
