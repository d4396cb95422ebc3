"""Settings and tables for tests that let a Snowflake account read a lake."""

from __future__ import annotations

from functools import cache
from typing import Any

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake.plan import LakeTable
from lakegate.downstream.snowflake.setup import SnowflakeSetup
from lakegate.model.identifiers import TableIdentifier

WAREHOUSE = "s3://lake/wh"
ROLE_ARN = "arn:aws:iam::123456789012:role/snowflake-lake"
KEY_VARIABLE = "TEST_SNOWFLAKE_KEY"


@cache
def private_key() -> str:
    """Return a private key in PEM, the same for all tests: making one takes longer than most of them."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def section(url: str = "http://127.0.0.1:9", **changes: Any) -> dict[str, Any]:
    """Return a section ``[downstream.snowflake]``; a change to ``None`` takes a key away."""
    values = {
        "type": "snowflake",
        "account": "acme-lake",
        "url": url,
        "user": "LAKEGATE",
        "private_key": f"env:{KEY_VARIABLE}",
        "role": "LAKEGATE",
        "warehouse": "LAKEGATE_WH",
        "database": "LAKE",
        "storage_role_arn": ROLE_ARN,
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def account_settings(url: str = "http://127.0.0.1:9", **changes: Any) -> SnowflakeDownstream:
    return SnowflakeDownstream.model_validate(section(url, **changes))


def lake_settings(url: str = "http://127.0.0.1:9", **changes: Any) -> Settings:
    return Settings.model_validate({"downstream": {"snowflake": section(url, **changes)}})


def open_setup(url: str, *, warehouse: str = WAREHOUSE, **changes: Any) -> SnowflakeSetup:
    return SnowflakeSetup("snowflake", lake_settings(url, **changes), warehouse)


def lake_table(name: str = "nyc.trips", version: int = 1, uuid: str = "6c1f") -> LakeTable:
    table = TableIdentifier.parse(name)
    return LakeTable(table, f"{WAREHOUSE}/{name}_{uuid}/metadata/{version:05}.metadata.json", uuid)


def path_of(table: LakeTable) -> str:
    return table.metadata_location.removeprefix(f"{WAREHOUSE}/")
