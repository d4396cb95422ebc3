"""A warehouse that can't be written to stops a run before it has a branch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakegate.context import Context
from lakegate.errors import ConfigurationError, StorageUnavailableError
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, begun, branches, ordered
from support.steps_support import known

UNUSABLE = ConfigurationError("The warehouse s3://lake can't be used.")
AWAY = StorageUnavailableError("S3 is away.")


def refusing(house: FakeLakehouse, error: Exception) -> Context:
    def refuse() -> None:
        assert branches(house) == ["main"]
        raise error

    return replace(house.context, require_writable=refuse)


@pytest.mark.parametrize("error", [UNUSABLE, AWAY])
def test_an_ingest_is_told_before_anything_is_written(house: FakeLakehouse, error: Exception) -> None:
    with pytest.raises(type(error)):
        ingest(refusing(house, error), ordered(house, CLEAN))
    assert (branches(house), house.writes) == (["main"], 0)
    found = known(house)
    assert found.status == "failed"
    assert ingest(house.context, ordered(house, CLEAN, run="r2", file="r1")).status == "published"


def test_a_transaction_is_told_before_its_body_begins(house: FakeLakehouse) -> None:
    with pytest.raises(ConfigurationError), begun(refusing(house, UNUSABLE)):
        pytest.fail("the body began")
    assert branches(house) == ["main"]
