"""Metrics in SQL: each counter is one row, to which all processes add."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import case, func, select

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import DELIVERIES, DOWNSTREAMS, LEASES, METRICS, as_text
from lakegate.telemetry import metrics as telemetry
from lakegate.telemetry.metrics import ACTIVE, SUSPENDED, Sample, is_time


def add(tx: JournalTransaction, samples: Iterable[Sample]) -> None:
    """Add to the counters, and advance the timestamps.

    Call it last in a transaction: all runs share these rows, so hold their locks as briefly as possible. All
    transactions lock the rows in the same order, so they never deadlock.
    """
    rows = sorted((sample.name, json.dumps(sample.labels), float(sample.value)) for sample in samples)
    times = [row for row in rows if is_time(row[0])]
    names, key = ("name", "labels", "value"), "name, labels"
    counters = [row for row in rows if row not in times]
    tx.insert(METRICS, counters, names, key=key, change="value = metrics.value + excluded.value")
    latest = "value = CASE WHEN excluded.value > metrics.value THEN excluded.value ELSE metrics.value END"
    tx.insert(METRICS, times, names, key=key, change=latest)


def read(tx: JournalTransaction) -> list[Sample]:
    """Return all metrics, with the numbers of active and suspended runs and of waiting deliveries."""
    rows = tx.execute(select(METRICS).order_by(METRICS.c.name, METRICS.c.labels))
    found = [Sample(row.name, tuple((key, value) for key, value in json.loads(row.labels)), row.value) for row in rows]
    now = as_text(tx.now())
    held = func.count(case((LEASES.c.token != "", 1)))
    live = tx.execute(select(held, func.count()).where(LEASES.c.expires_at > now)).one()
    active, all_of = int(live[0]), int(live[1])
    # Only waiting deliveries, by the index: sent ones aren't read.
    systems, waiting = DELIVERIES.c.downstream, DELIVERIES.c.state
    named = systems.in_(select(DOWNSTREAMS.c.name)), waiting.in_(("pending", "failed"))
    query = select(systems, waiting, func.count().label("number")).where(*named).group_by(systems, waiting)
    for row in tx.execute(query):
        labels = (("downstream", row.downstream), ("state", row.state))
        found.append(Sample(telemetry.DELIVERIES.name, labels, row.number))
    return [*found, Sample(ACTIVE.name, (), active), Sample(SUSPENDED.name, (), all_of - active)]
