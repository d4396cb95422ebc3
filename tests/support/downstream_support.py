"""A lakehouse in memory with downstream systems, each a list of what it was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lakegate.context import Context, Subscriber
from lakegate.errors import DownstreamUnavailableError
from lakegate.model.downstream import Delivery, DownstreamEvent, DownstreamKind, Subscription
from lakegate.model.run import Run
from lakegate.ports import Downstream, Notifier
from lakegate.wap.downstream import send
from support.memory_journal import MemoryDatabase
from support.revert_support import House

USUAL: tuple[DownstreamKind, ...] = ("published", "reverted", "restored", "current")


@dataclass
class System:
    """A downstream system. ``fails`` is asked before each delivery, and raises what it returns."""

    name: str
    events: tuple[DownstreamKind, ...] = USUAL
    tables: tuple[str, ...] = ("*",)
    mirrors: bool = False
    told: list[DownstreamEvent] = field(default_factory=list)
    tries: int = 0
    fails: Callable[[DownstreamEvent], BaseException | None] = lambda _: None
    opens: Callable[[], None] = lambda: None

    @property
    def runs(self) -> list[str | None]:
        return [event.run_id for event in self.told]

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        assert run is None or run.run_id == event.run_id
        self.tries += 1
        error = self.fails(event)
        if error is not None:
            raise error
        self.told.append(DownstreamEvent.model_validate_json(event.model_dump_json()))

    def test(self) -> str:
        return "It answers."

    def open(self) -> Downstream:
        self.opens()
        return self

    def subscriber(self) -> Subscriber:
        subscription = Subscription(name=self.name, events=self.events, tables=self.tables, mirrors=self.mirrors)
        return Subscriber(subscription, timedelta(days=1), 10, self.open)


def down(_: DownstreamEvent) -> BaseException:
    return DownstreamUnavailableError("It can't be reached.")


def up(_: DownstreamEvent) -> None:
    return None


class World(House):
    """A lakehouse whose journal goes by a clock of its own."""

    def __init__(self, *systems: System) -> None:
        super().__init__()
        self.systems = systems
        self.notifier: Notifier | None = None
        self.now = datetime.now(UTC)
        self.database = MemoryDatabase(clock=lambda: self.now)
        self.kill()

    @property
    def context(self) -> Context:
        downstreams = tuple(system.subscriber() for system in self.systems)
        return replace(super().context, downstreams=downstreams, notifier=self.notifier)

    def later(self, **time: float) -> Sequence[Delivery]:
        """Let time pass, and have somebody look what is due."""
        self.now += timedelta(**time)
        return send(self.context, target="main")

    def states(self, name: str = "hook") -> list[tuple[str | None, str]]:
        found = self.journal.outbox.list(name=name, limit=1000)
        return [(one.run_id, one.state) for one in reversed(found)]


def row(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "passengers": 1}]
