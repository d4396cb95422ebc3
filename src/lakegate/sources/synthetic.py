"""Generate files with synthetic trips, for demos, tests and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from lakegate.errors import AlreadyExistsError, InputError
from lakegate.model.batch import FileFormat
from lakegate.model.words import counted, did_you_mean
from lakegate.ports import Narrator

BLOCK_ROWS = 100_000
"""Rows to generate at a time. The values depend on it: changing it changes every file."""

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
_DEFAULT_NULL_COLUMN = "passenger_count"


def generate(
    folder: Path,
    *,
    files: int = 2,
    rows: int = 100_000,
    null_rate: float = 0.0,
    null_columns: Sequence[str] = (),
    seed: int = 7,
    format: FileFormat = "parquet",
    overwrite: bool = False,
    narrator: Narrator | None = None,
) -> tuple[Path, ...]:
    """Write files with synthetic trips, ``trips-0001.parquet`` and so on, and return their paths.

    The same arguments always give the same values. A file only gets its name once it's complete.

    Args:
        folder: Where to write. It's created if it doesn't exist.
        files: Number of files.
        rows: Number of rows in each file.
        null_rate: Probability, 0 to 1, that a value of ``null_columns`` is NULL. Above 0, each file has at least one
            NULL in each of these columns; at 0, there are none.
        null_columns: Columns with NULLs; by default, ``passenger_count``.
        seed: Seed of the random values.
        format: Format of the files. CSV doesn't have the nested and binary columns.
        overwrite: Replace files with the same names. Other files in the folder stay.
        narrator: Gets the progress.

    Raises:
        AlreadyExistsError: When files with these names exist and ``overwrite`` is false.
        InputError: When an argument is out of range, a column doesn't exist, or the folder can't be written.
    """
    for is_wrong, message, hint in (
        (files < 1, f"Can't write {files} files.", "Pass --files 1 or more."),
        (rows < 0, f"Can't write {rows} rows.", "Pass --rows 0 or more."),
        (
            not 0 <= null_rate <= 1,
            f"The NULL rate {null_rate} isn't between 0 and 1.",
            "Pass a --null-rate from 0 to 1.",
        ),
        (seed < 0, f"Seed {seed} is negative.", "Pass --seed 0 or more."),
    ):
        if is_wrong:
            raise InputError(message, hint=hint)
    schema = trip_schema(format)
    for column in null_columns:
        _require_column(column, schema, format)
    rates = dict.fromkeys(null_columns or (_DEFAULT_NULL_COLUMN,), null_rate)
    paths = tuple(Path(folder) / f"trips-{number:04d}.{format}" for number in range(1, files + 1))
    title = f"Generating {counted(files * rows, 'row')} in {counted(files, f'{format} file')}"
    with _as_input_errors(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        if not overwrite:
            _require_absent(paths)
        done = 0
        with nullcontext() if narrator is None else narrator.step(title) as step:
            for file, path in enumerate(paths):
                with _complete_file(path) as unfinished, _writer(unfinished, schema, format) as writer:
                    for index, start in enumerate(range(0, rows, BLOCK_ROWS)):
                        count = min(BLOCK_ROWS, rows - start)
                        block = Block(seed, file, index, count, first_id=file * rows + start + 1)
                        writer.write_batch(draw(block, schema, rates))
                        done += count
                        if step is not None:
                            step.progress(done, files * rows, "rows")
    return paths


def _require_column(column: str, schema: pa.Schema, file_format: FileFormat) -> None:
    if column not in schema.names:
        guess = did_you_mean(column, schema.names).strip()
        raise InputError(
            f"The generated {file_format} files have no column '{column}'.",
            hint=guess or f"Columns: {', '.join(schema.names)}.",
            column=column,
        )


def _require_absent(paths: Sequence[Path]) -> None:
    existing = [path for path in paths if path.exists()]
    if existing:
        exist = f"and {len(existing) - 1} more already exist" if len(existing) > 1 else "already exists"
        raise AlreadyExistsError(
            f"'{existing[0]}' {exist}.",
            hint="Pass another folder, or --force to replace these files.",
            path=str(existing[0]),
        )


@contextmanager
def _as_input_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"'{folder}' isn't a folder, or is below a file.", hint="Pass another folder.", path=str(folder)
        ) from error
    except OSError as error:
        raise InputError(
            f"Can't write to '{folder}': {error.strerror or error}.",
            hint="Check its permissions and the free disk space, or pass another folder.",
            path=str(folder),
        ) from error


@contextmanager
def _complete_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to ``path`` after the body."""
    # Hidden, so that neither discovery nor Spark reads it.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _writer(path: Path, schema: pa.Schema, file_format: FileFormat) -> Any:
    if file_format == "csv":
        return pv.CSVWriter(path, schema)
    texts: Any = [*(field.name for field in schema if pa.types.is_string(field.type)), "stops.list.element"]
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=texts)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows to generate: block ``index`` of file ``file``, both from 0; ``first_id`` is the first ``trip_id``."""

    seed: int
    file: int
    index: int
    rows: int
    first_id: int


def trip_schema(file_format: FileFormat) -> pa.Schema:
    """Return the columns of a trips file. CSV can't represent the nested and binary ones."""
    return pa.schema(_CSV_FIELDS if file_format == "csv" else (*_CSV_FIELDS, *_PARQUET_FIELDS))


def draw(block: Block, schema: pa.Schema, null_rates: Mapping[str, float]) -> pa.RecordBatch:
    """Generate the rows of ``block``.

    Each block has its own generator, seeded by seed, file and block, so that its rows don't depend on the order in
    which blocks are generated.

    Args:
        null_rates: Probability of NULL by column. If it's above 0, a file's first block has at least one NULL.
    """
    # Two generators, so that the values don't depend on which of them become NULL.
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
            array = array.take(pa.array(np.arange(block.rows), mask=mask))
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
