"""Sessions that can't be used: they end, and nothing counts them as open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lakegate.errors import EngineUnavailableError
from lakegate.model.refs import Ref
from lakegate.spark.engine import SparkEngine

_MAIN = Ref(name="main", hash="a1", kind="branch")


class _Away:
    """A session of Spark Connect whose catalog doesn't answer."""

    def __init__(self) -> None:
        self.stopped = False
        self.client = SimpleNamespace(set_retry_policies=lambda _: None)

    def sql(self, _text: str) -> None:
        raise EngineUnavailableError("Spark couldn't reach the catalog.")

    def stop(self) -> None:
        self.stopped = True


_Away.__module__ = "tests.connect.session"


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: engine.transaction("b", "r1"),
        lambda engine: engine.query("SELECT 1", _MAIN),
    ],
)
def test_a_session_whose_catalog_is_away_ends(use: Callable[[SparkEngine], Any]) -> None:
    made: list[_Away] = []

    def open_one(_settings: Mapping[str, str]) -> _Away:
        made.append(_Away())
        return made[-1]

    engine = SparkEngine(open_one, lambda _: {}, shares_files=True)
    for _ in range(2):
        with pytest.raises(EngineUnavailableError):
            use(engine)
    assert [one.stopped for one in made] == [True, True]
    assert not engine.in_transaction
