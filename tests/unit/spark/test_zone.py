"""In which time zone a Spark of one's own reads a database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakegate.errors import ConfigurationError
from lakegate.model.source import Source
from lakegate.spark.engine import require_utc

ORDERS = Source.parse("shop.public.orders", watermark="at")


class Session:
    """Has a JVM in a time zone, or doesn't say which."""

    def __init__(self, zone: str | None) -> None:
        self.zone = zone
        self.asked = 0

    def range(self, number: int) -> Any:
        self.asked += number
        return self

    def selectExpr(self, sql: str) -> Any:
        assert sql == "java_method('java.time.ZoneId', 'systemDefault')"
        return self

    def collect(self) -> list[tuple[str]]:
        if self.zone is None:
            raise RuntimeError("not here")
        return [(self.zone,)]


def frame(*kinds: str) -> Any:
    fields = [SimpleNamespace(dataType=SimpleNamespace(simpleString=lambda kind=kind: kind)) for kind in kinds]
    return SimpleNamespace(schema=SimpleNamespace(fields=fields))


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date", "array<date>"])
def test_times_and_dates_are_read_in_utc_only(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="runs in the time zone Europe/Berlin") as refused:
        require_utc(Session("Europe/Berlin"), frame("bigint", kind), ORDERS)
    assert "-Duser.timezone=UTC" in str(refused.value.hint)
    for zone in ("UTC", "Etc/UTC", "Z", None):
        require_utc(Session(zone), frame("bigint", kind), ORDERS)


def test_rows_without_times_need_no_zone() -> None:
    session = Session("Europe/Berlin")
    require_utc(session, frame("bigint", "string"), ORDERS)
    assert session.asked == 0
