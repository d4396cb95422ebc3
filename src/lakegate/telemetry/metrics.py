"""The metrics that lakegate measures, and how runs count them.

A run counts in its own process, and adds its counts to the journal when it ends or is suspended. Counters therefore
never decrease, and the time to read them depends on the number of series, not of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Literal, NamedTuple

from lakegate.model.run import Run

BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of histogram buckets, in seconds."""
OVERFLOW = "+Inf"
TIMESTAMP_SUFFIX = "_timestamp_seconds"
"""Suffix of metrics that are points in time. Their latest value counts, not the sum."""


class Metric(NamedTuple):
    """A metric. Its name includes the unit; a counter's name leaves out ``_total``."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    text: str
    labels: tuple[str, ...] = ()


Observer = Callable[[Metric, float, dict[str, str]], None]

RUNS = Metric("lakegate_runs", "counter", "Runs that ended.", ("kind", "status"))
TABLE_RUNS = Metric(
    "lakegate_table_runs", "counter", "Runs that ended, once for each of their tables.", ("table", "status")
)
ROWS = Metric("lakegate_rows", "counter", "Rows that runs wrote, by outcome of the run.", ("table", "status"))
RUN_SECONDS = Metric("lakegate_run_seconds", "histogram", "Seconds that runs worked, without pauses.", ("status",))
STEP_SECONDS = Metric("lakegate_step_seconds", "histogram", "Seconds that a run's steps took.", ("step", "outcome"))
CHECKS = Metric("lakegate_checks", "counter", "Checks that were answered.", ("evidence", "verdict"))
AUDIT_SECONDS = Metric("lakegate_audit_seconds", "counter", "Seconds spent on answering checks.", ("evidence",))
RETRIES = Metric("lakegate_conflict_retries", "counter", "Commits retried because the target had moved.")
LEASE_LOSSES = Metric("lakegate_lease_losses", "counter", "Runs taken over because their lease had expired.")
WAIT_SECONDS = Metric(
    "lakegate_queue_wait_seconds",
    "histogram",
    "Seconds that runs waited: to publish (queue publish), or for another run with the same file (queue files).",
    ("queue",),
)
LAST_PUBLISH = Metric("lakegate_last_publish_timestamp_seconds", "gauge", "When data was last published.", ("table",))
ACTIVE = Metric("lakegate_active_runs", "gauge", "Runs that a process is working on.")
SUSPENDED = Metric("lakegate_suspended_runs", "gauge", "Runs that wait for their next step.")
DELIVERIES = Metric(
    "lakegate_deliveries", "gauge", "Events that downstream systems haven't received yet.", ("downstream", "state")
)
METRICS = (
    *(RUNS, TABLE_RUNS, ROWS, RUN_SECONDS, STEP_SECONDS, CHECKS, AUDIT_SECONDS, RETRIES, LEASE_LOSSES, WAIT_SECONDS),
    *(LAST_PUBLISH, ACTIVE, SUSPENDED, DELIVERIES),
)


class Sample(NamedTuple):
    """One number of a metric.

    Attributes:
        name: The metric's name, for histograms with ``_bucket`` or ``_sum``. Buckets aren't cumulative.
        labels: Names and values.
        value: The amount to add, or the point in time.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Measurements:
    """Counts measurements of a run.

    Args:
        observe: Also called with each measurement.
    """

    def __init__(self, observe: Observer | None = None) -> None:
        self._observe = observe
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)

    def add(self, metric: Metric, value: float = 1.0, **labels: str) -> None:
        """Add to a counter, or record a value in a histogram."""
        if self._observe is not None:
            self._observe(metric, value, labels)
        given = tuple((name, labels[name]) for name in metric.labels)
        if metric.kind != "histogram":
            self._values[metric.name, given] += value
            return
        bound = next((str(one) for one in BUCKETS if value <= one), OVERFLOW)
        self._values[f"{metric.name}_bucket", (*given, ("le", bound))] += 1
        self._values[f"{metric.name}_sum", given] += value

    def set(self, metric: Metric, time: datetime, **labels: str) -> None:
        """Set a point in time."""
        if self._observe is not None:
            self._observe(metric, time.timestamp(), labels)
        given = tuple((name, labels[name]) for name in metric.labels)
        self._values[metric.name, given] = time.timestamp()

    def take(self) -> list[Sample]:
        """Return the counts, and start from zero."""
        taken, self._values = self._values, defaultdict(float)
        return [Sample(name, labels, value) for (name, labels), value in taken.items()]


_CURRENT: ContextVar[Measurements | None] = ContextVar("lakegate_measured", default=None)


@contextmanager
def measuring(measured: Measurements) -> Iterator[None]:
    """Count measurements of the body in ``measured``, in this thread."""
    token = _CURRENT.set(measured)
    try:
        yield
    finally:
        # If the block ends in another thread than it began in, there's nothing to reset.
        with suppress(ValueError):
            _CURRENT.reset(token)


def measure(metric: Metric, value: float = 1.0, **labels: str) -> None:
    """Count a measurement of the current run, if there is one."""
    measured = _CURRENT.get()
    if measured is not None:
        measured.add(metric, value, **labels)


def count_ending(measured: Measurements, run: Run, begun: Run) -> None:
    """Count how a run ended.

    Args:
        begun: The run as this process found it. Earlier events were counted before.
    """
    if begun.finished_at is not None and begun.status == run.status:
        return
    measured.add(RUNS, kind=run.kind, status=run.status)
    if run.seconds is not None:
        measured.add(RUN_SECONDS, run.seconds, status=run.status)
    rows = {str(staged.table): staged.rows for staged in run.staged}
    brings_data = run.kind not in ("maintenance", "revert", "restore")
    for table in dict.fromkeys(run.tables):
        measured.add(TABLE_RUNS, table=table, status=run.status)
        if rows.get(table):
            measured.add(ROWS, rows[table], table=table, status=run.status)
        if run.status == "published" and brings_data and run.finished_at is not None:
            measured.set(LAST_PUBLISH, run.finished_at, table=table)


def count_steps(measured: Measurements, run: Run, begun: Run) -> None:
    """Count the steps and checks done since ``begun``."""
    for step in run.steps[len(begun.steps) :]:
        if step.finished_at is not None:
            took = (step.finished_at - step.started_at).total_seconds()
            measured.add(STEP_SECONDS, took, step=step.name, outcome=step.outcome)
    if run.reports != begun.reports:
        for report in run.reports:
            for result in report.results:
                measured.add(CHECKS, evidence=result.evidence, verdict="warn" if result.warns else result.verdict)


def is_time(name: str) -> bool:
    """Return whether a sample is a point in time, whose latest value counts instead of the sum."""
    return name.endswith(TIMESTAMP_SUFFIX)


def by_metric(samples: Iterable[Sample]) -> Iterator[tuple[Metric, Sequence[Sample]]]:
    """Yield each metric with its samples, in the order of :data:`METRICS`. Skips metrics of a newer lakegate."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.name, []).append(sample)
    for metric in METRICS:
        names = (f"{metric.name}_bucket", f"{metric.name}_sum") if metric.kind == "histogram" else (metric.name,)
        own = [sample for name in names for sample in found.get(name, ())]
        if own:
            yield metric, own
