"""What tests of downstream systems share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakegate.downstream.snowflake import OPTIONS
from support.snowflake_server import SnowflakeAccount, snowflake_account
from support.snowflake_support import KEY_VARIABLE, private_key


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[SnowflakeAccount]:
    """An empty Snowflake account, with its key in a variable."""
    monkeypatch.setenv(KEY_VARIABLE, private_key())
    monkeypatch.setitem(OPTIONS, "retry_backoff_base_ms", 1)
    monkeypatch.setitem(OPTIONS, "retry_backoff_cap_ms", 5)
    monkeypatch.setitem(OPTIONS, "retry_max_attempts", 3)
    monkeypatch.setitem(OPTIONS, "use_proxy_env", False)  # noqa: FBT003
    with snowflake_account() as served:
        yield served
