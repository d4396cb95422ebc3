"""``python -m benchmarks.thousand``: 1,000 writers on 1,000 tables, simulated: how long a publish takes, what fills up.

A discrete simulation in virtual time. ``docs/design/scale.md`` says where its times are from, and what is assumed.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

WRITERS = 1_000
_SECONDS = 600  # of virtual time
Stage = tuple[str, float]  # a resource and for how long one of its servers is busy; "" is nobody's: time passes


@dataclass
class Resource:
    """Servers with one queue, first come, first served."""

    servers: int
    busy: int = 0
    worked_s: float = 0.0
    queue: deque[tuple[float, partial[None]]] = field(default_factory=deque)


@dataclass(frozen=True)
class Deployment:
    """How much there is of each resource, and the seconds that a run takes of it; ``_MEASURED`` describes each."""

    spark_slots: int
    spark_s: float
    catalog_cores: int
    read_s: float
    commit_s: float
    journal_cores: int
    journal_s: float
    client_s: float

    def run(self, chance: random.Random) -> Iterator[Stage]:
        """Yield a run's stages; ``publish`` is where its publish begins. Times vary around their means."""

        def around(mean: float) -> float:
            return mean * chance.lognormvariate(-0.125, 0.5)

        yield "Nessie", around(self.read_s / 2)
        yield "journal", around(self.journal_s / 2)
        yield "Spark", around(self.spark_s)
        yield "publish", 0.0
        yield "", around(self.client_s)
        yield "Nessie", around(self.read_s / 2)
        yield "journal", around(self.journal_s / 2)
        yield "main", around(self.commit_s)


class Simulation:
    """Virtual time, in which the writers' steps take place one after the other."""

    def __init__(self, deployment: Deployment, runs_per_s: float) -> None:
        cores = (deployment.spark_slots, deployment.catalog_cores, deployment.journal_cores, 1)
        servers = dict(zip(("Spark", "Nessie", "journal", "main"), cores, strict=True))
        self.resources = {name: Resource(count) for name, count in servers.items()}
        self.took: list[float] = []  # seconds of each publish
        self._deployment, self._chance = deployment, random.Random(1)
        self._mean_wait_s = WRITERS / runs_per_s
        self._now, self._order = 0.0, count()
        self._events: list[tuple[float, int, partial[None]]] = []

    def play(self, seconds: float) -> None:
        """Let time pass. What is published in the first fifth doesn't count: the queues are still filling."""
        for _ in range(WRITERS):
            self._step(self._writer(seconds / 5))
        while self._events[0][0] < seconds:
            self._now, _, do = heapq.heappop(self._events)
            do()

    def _writer(self, counts_from: float) -> Generator[Stage, None, None]:
        """Yield a writer's stages. A batch that's due before the last run is over begins late, as a watcher's does."""
        due = began = 0.0
        while True:
            due += self._chance.expovariate(1 / self._mean_wait_s)
            yield "", max(0.0, due - self._now)
            for stage, needed in self._deployment.run(self._chance):
                if stage == "publish":
                    began = self._now
                else:
                    yield stage, needed
            if began > counts_from:
                self.took.append(self._now - began)

    def _step(self, writer: Generator[Stage, None, None]) -> None:
        name, needed = next(writer)
        if name:
            self.resources[name].queue.append((needed, partial(self._step, writer)))
            self._serve(self.resources[name])
        else:
            heapq.heappush(self._events, (self._now + needed, next(self._order), partial(self._step, writer)))

    def _serve(self, resource: Resource) -> None:
        while resource.queue and resource.busy < resource.servers:
            needed, then = resource.queue.popleft()
            resource.busy += 1
            resource.worked_s += needed
            heapq.heappush(
                self._events, (self._now + needed, next(self._order), partial(self._release, resource, then))
            )

    def _release(self, resource: Resource, then: partial[None]) -> None:
        resource.busy -= 1
        self._serve(resource)
        then()


_MEASURED: Mapping[str, tuple[float, str]] = {
    "spark_slots": (200, "runs that Spark works on at once"),
    "spark_s": (3.0, "seconds of one in Spark"),
    "catalog_cores": (2, "cores of Nessie"),
    "read_s": (0.037, "Nessie's seconds for a run, but for the commit"),
    "commit_s": (0.011, "seconds of one commit on main"),
    "journal_cores": (2, "cores of the journal's database"),
    "journal_s": (0.020, "its seconds for a run"),
    "client_s": (0.040, "seconds of the writer's own machine for a publish"),
}


def main() -> None:
    """Print a line for each rate of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, (value, text) in _MEASURED.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=text)
    given = vars(parser.parse_args())
    deployment = Deployment(**{name: given[name] for name in _MEASURED})
    print(f"{'runs/s':>7} {'done/s':>7} {'p50':>8} {'p99':>8}  busy")
    for rate in (1, 2, 5, 10, 20, 40, 60, 80, 120):
        simulation = Simulation(deployment, rate)
        simulation.play(_SECONDS)
        took = sorted(simulation.took)
        half, most = (took[int(len(took) * share)] for share in (0.5, 0.99))
        busy = (f"{name} {one.worked_s / one.servers / _SECONDS:.0%}" for name, one in simulation.resources.items())
        done = len(took) / _SECONDS / 0.8
        print(f"{rate:>7g} {done:>7.1f} {half:>7.2f}s {most:>7.2f}s  {', '.join(busy)}")


if __name__ == "__main__":
    main()
