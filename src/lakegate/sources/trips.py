"""Made-up taxi trips: which columns, and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakegate.model.batch import FileFormat

BLOCK_ROWS = 100_000
"""Rows drawn at a time. Part of what the values depend on: changing it changes every file."""

_CSV_FIELDS = (
    pa.field("trip_id", pa.int64()),
    pa.field("vendor", pa.string()),
    pa.field("pickup", pa.timestamp("us")),
    pa.field("dropoff", pa.timestamp("us")),
    pa.field("passenger_count", pa.int32()),
    pa.field("trip_distance", pa.float64()),
    pa.field("fare_amount", pa.decimal128(10, 2)),
    pa.field("tip_amount", pa.decimal128(10, 2)),
    pa.field("payment_type", pa.string()),
    pa.field("zone", pa.string()),
    pa.field("airport", pa.bool_()),
    pa.field("pickup_date", pa.date32()),
)
_PARQUET_FIELDS = (
    pa.field("surge", pa.float32()),
    pa.field("receipt", pa.binary()),
    pa.field("stops", pa.list_(pa.field("element", pa.string()))),
    pa.field("driver", pa.struct([pa.field("id", pa.int64()), pa.field("rating", pa.float32())])),
)
_VENDORS: Any = pa.array(["Creative Mobile", "Curb", "Helix", "Myle"])
_PAYMENT_TYPES: Any = pa.array(["card", "cash", "no charge", "dispute"])
_ZONES: Any = pa.array(
    [
        "Midtown", "Harlem", "Chelsea", "Astoria", "SoHo", "Café Córdoba", "Łódź Plaza", "Åre Point", "Straße 7",
        "Chinatown 唐人街", "Koreatown 코리아타운", "Little Odessa Одесса", 'Hell\'s Kitchen "West"',
        "Williamsburg, South",
        "JFK Airport ✈", "LaGuardia Airport ✈", "Newark Airport ✈",
    ]
)  # fmt: skip
_FIRST_AIRPORT_ZONE = 14
_START = np.datetime64("2024-01-01T00:00:00", "us")
_WINDOW_SECONDS = 31 * 86_400
_CARD = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Which rows to draw.

    Attributes:
        seed: Seed of the whole set of files.
        file: Index of the file, from 0.
        index: Index of the block in its file, from 0.
        rows: Rows to draw, at most :data:`BLOCK_ROWS`.
        first_id: ``trip_id`` of the first of them.
    """

    seed: int
    file: int
    index: int
    rows: int
    first_id: int


def trip_schema(file_format: FileFormat) -> pa.Schema:
    """Return the columns of a trips file; CSV cannot hold the nested and binary ones."""
    return pa.schema(_CSV_FIELDS if file_format == "csv" else (*_CSV_FIELDS, *_PARQUET_FIELDS))


def draw(block: Block, schema: pa.Schema, null_rates: Mapping[str, float]) -> pa.RecordBatch:
    """Return the rows of ``block``.

    Every block has a generator of its own, seeded by seed, file and block: the same block gives the same rows wherever
    and in whatever order it is drawn.

    Args:
        block: The rows to draw.
        schema: Columns to return.
        null_rates: Probability of NULL by column. Where it is above 0, a file's first block has at least one.
    """
    # two generators, so that the values that stay do not depend on which ones are taken away
    values = np.random.Generator(np.random.PCG64([block.seed, block.file, block.index, 0]))
    nulls = np.random.Generator(np.random.PCG64([block.seed, block.file, block.index, 1]))
    columns = _draw_columns(block, values)
    arrays = []
    for field in schema:
        rate = null_rates.get(field.name, 0.0)
        array = columns[field.name]
        if rate > 0 and block.rows > 0:
            mask = nulls.random(block.rows) < rate
            mask[nulls.integers(block.rows)] |= block.index == 0
            array = _with_nulls(array, mask)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _draw_columns(block: Block, random: np.random.Generator) -> dict[str, Any]:
    count = block.rows
    pickup = _START + random.integers(0, _WINDOW_SECONDS, count).astype("timedelta64[s]")
    miles = np.round(random.gamma(2.0, 1.6, count) + 0.1, 2)
    seconds = (miles * 240).astype(np.int64) + random.integers(60, 600, count)
    payment = random.choice(4, count, p=[0.7, 0.25, 0.03, 0.02])
    zone = random.integers(0, len(_ZONES), count)
    fare = 300 + (miles * 250).astype(np.int64) + random.integers(0, 500, count)
    tip = np.where(payment == _CARD, fare * random.integers(10, 30, count) // 100, 0)
    driver = random.integers(1, 5_000, count)
    return {
        "trip_id": pa.array(np.arange(block.first_id, block.first_id + count, dtype=np.int64)),
        "vendor": _VENDORS.take(pa.array(random.integers(0, len(_VENDORS), count))),
        "pickup": pa.array(pickup),
        "dropoff": pa.array(pickup + seconds.astype("timedelta64[s]")),
        "passenger_count": pa.array(random.integers(1, 7, count, dtype=np.int32)),
        "trip_distance": pa.array(miles),
        "fare_amount": _decimal(fare),
        "tip_amount": _decimal(tip),
        "payment_type": _PAYMENT_TYPES.take(pa.array(payment)),
        "zone": _ZONES.take(pa.array(zone)),
        "airport": pa.array(zone >= _FIRST_AIRPORT_ZONE),
        "pickup_date": pa.array(pickup.astype("datetime64[D]")),
        "surge": pa.array((1 + random.integers(0, 8, count) / 4).astype(np.float32)),
        "receipt": _binary(random.integers(0, 2**63, count, dtype=np.int64)),
        "stops": _stops(random, count),
        "driver": pa.StructArray.from_arrays(
            [pa.array(driver), pa.array((3 + driver % 21 / 10).astype(np.float32))],
            fields=list(_PARQUET_FIELDS[-1].type),
        ),
    }


def _decimal(cents: npt.NDArray[np.int64]) -> Any:
    """Return cents as ``decimal(10, 2)``, whose Arrow layout is a 128-bit little-endian integer."""
    words = np.stack([cents, cents >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(10, 2), len(cents), [None, pa.py_buffer(words.tobytes())])


def _binary(words: npt.NDArray[np.int64]) -> Any:
    offsets = np.arange(0, (len(words) + 1) * 8, 8, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(words.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(words), buffers)


def _stops(random: np.random.Generator, count: int) -> Any:
    lengths = random.integers(0, 3, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    names = _ZONES.take(pa.array(random.integers(0, len(_ZONES), int(offsets[-1]))))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names, type=_PARQUET_FIELDS[2].type)


def _with_nulls(array: Any, mask: npt.NDArray[np.bool_]) -> Any:
    return array.take(pa.array(np.arange(len(array)), mask=mask))
