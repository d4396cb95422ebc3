"""Snowflake passes the contract of every downstream system."""

from __future__ import annotations

import pytest

from lakegate.downstream.snowflake import SnowflakeTarget
from lakegate.downstream.snowflake.storage import volume_location
from lakegate.ports import Downstream
from support.downstream_contract import LAKE, DownstreamContract
from support.snowflake_server import SnowflakeAccount
from support.snowflake_support import account_settings

WAREHOUSE = LAKE.removesuffix("/nyc/trips_1/metadata")


class TestSnowflake(DownstreamContract):
    @pytest.fixture
    def target(self, account: SnowflakeAccount) -> Downstream:
        account.furnish("s3://lake/")
        return self._target(account.url)

    @pytest.fixture
    def away(self, account: SnowflakeAccount) -> Downstream:
        account.fail("login-request", status=503, times=99)
        return self._target(account.url)

    @pytest.fixture
    def refusing(self, account: SnowflakeAccount, monkeypatch: pytest.MonkeyPatch) -> Downstream:
        monkeypatch.setenv("TEST_SNOWFLAKE_TOKEN", "hunter2hunter2")
        return self._target(account.url, private_key=None, token="env:TEST_SNOWFLAKE_TOKEN")

    def _target(self, url: str, **changes: str | None) -> SnowflakeTarget:
        return SnowflakeTarget(
            "snowflake", account_settings(url, **changes), volume_location(WAREHOUSE), lambda *_: "6c1f"
        )
