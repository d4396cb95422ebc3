"""The clients of object stores, in less of a hurry than tests are."""

from __future__ import annotations

import pytest

_WAIT_S = 0.02


def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries of AWS and Azure try again as often as ever, with next to no wait between."""
    for method in (
        "botocore.retries.standard.ExponentialBackoff.delay_amount",
        "azure.storage.blob.ExponentialRetry.get_backoff_time",
    ):
        monkeypatch.setattr(method, lambda *_: _WAIT_S)
