"""Settings for tests that let a Snowflake account read a lake."""

from __future__ import annotations

from functools import cache
from typing import Any

from lakegate.config import SnowflakeDownstream

KEY_VARIABLE = "TEST_SNOWFLAKE_KEY"


@cache
def private_key() -> str:
    """Return a private key in PEM, the same for all tests: making one takes longer than most of them."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def account_settings(url: str = "http://127.0.0.1:9", **changes: Any) -> SnowflakeDownstream:
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
        **changes,
    }
    return SnowflakeDownstream.model_validate({key: value for key, value in values.items() if value is not None})
