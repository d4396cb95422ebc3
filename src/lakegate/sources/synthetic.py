"""Files of made-up trips, for demos, tests and measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from lakegate.errors import AlreadyExistsError, InputError
from lakegate.model.batch import FileFormat
from lakegate.model.schema import nearest
from lakegate.protocols import Narrator
from lakegate.sources.trips import BLOCK_ROWS, Block, draw, trip_schema

_DEFAULT_NULL_COLUMN = "passenger_count"


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Plan:
    folder: Path
    files: int
    rows: int
    null_rates: dict[str, float]
    seed: int
    format: FileFormat
    schema: pa.Schema

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / f"trips-{number:04d}.{self.format}" for number in range(1, self.files + 1))


def generate(
    folder: Path,
    *,
    files: int = 2,
    rows: int = 100_000,
    null_rate: float = 0.0,
    null_columns: Sequence[str] = (),
    seed: int = 7,
    format: FileFormat = "parquet",  # noqa: A002 - the word of the command line
    overwrite: bool = False,
    narrator: Narrator | None = None,
) -> tuple[Path, ...]:
    """Write files of made-up trips, ``trips-0001.parquet`` and so on, and return their paths.

    The same arguments give the same values, always. A file appears under its name only when it is complete.

    Args:
        folder: Where to write; made when it is not there.
        files: How many files.
        rows: Rows in each of them.
        null_rate: Probability, 0 to 1, that a value of ``null_columns`` is NULL. Above 0, each file has at least one
            NULL in each of them; at 0 there are none anywhere.
        null_columns: Columns that may be NULL; ``passenger_count`` when none is given.
        seed: What the values are drawn from, 0 or more.
        format: Format of the files. CSV lacks the nested and binary columns.
        overwrite: Replace files of the same names; other files in the folder stay.
        narrator: Is told how far it is.

    Raises:
        AlreadyExistsError: When files of these names exist and ``overwrite`` is false.
        InputError: When an argument is out of range, a column does not exist, or the folder cannot be written.
    """
    _require(files >= 1, f"Cannot write {files} files.", "Give --files 1 or more.")
    _require(rows >= 0, f"Cannot write {rows} rows.", "Give --rows 0 or more.")
    _require(0 <= null_rate <= 1, f"A share of {null_rate} NULLs is not possible.", "Give a --null-rate from 0 to 1.")
    _require(seed >= 0, f"Seed {seed} is negative.", "Give --seed 0 or more.")
    schema = trip_schema(format)
    for column in null_columns:
        _require_column(column, schema, format)
    rates = dict.fromkeys(null_columns or (_DEFAULT_NULL_COLUMN,), null_rate)
    plan = _Plan(Path(folder), files, rows, rates, seed, format, schema)
    with _as_input_errors(plan.folder):
        plan.folder.mkdir(parents=True, exist_ok=True)
        if not overwrite:
            _require_absent(plan.paths)
        with _progress(plan, narrator) as advance:
            for index, path in enumerate(plan.paths):
                _write_file(plan, index, path, advance)
    return plan.paths


def _require(condition: bool, message: str, hint: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise InputError(message, hint=hint)


def _require_column(column: str, schema: pa.Schema, file_format: FileFormat) -> None:
    if column in schema.names:
        return
    close = nearest(column, schema.names)
    raise InputError(
        f"The generated {file_format} files have no column '{column}'.",
        hint=f"Did you mean '{close}'?" if close else f"Columns: {', '.join(schema.names)}.",
        column=column,
    )


def _require_absent(paths: Sequence[Path]) -> None:
    existing = [path for path in paths if path.exists()]
    if existing:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise AlreadyExistsError(
            f"'{existing[0]}'{more} exists already.",
            hint="Give another folder, or --force to replace these files.",
            path=str(existing[0]),
        )


@contextmanager
def _as_input_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"'{folder}' is not a folder, or lies below a file.", hint="Give another folder.", path=str(folder)
        ) from error
    except OSError as error:
        raise InputError(
            f"Cannot write to '{folder}': {error.strerror or error}.",
            hint="Check its permissions and the free space of its disk, or give another folder.",
            path=str(folder),
        ) from error


@contextmanager
def _progress(plan: _Plan, narrator: Narrator | None) -> Iterator[Callable[[int], None]]:
    if narrator is None:
        yield lambda _: None
        return
    total, done = plan.files * plan.rows, 0
    with narrator.step(f"Generating {total:,} rows in {plan.files:,} {plan.format} files") as step:

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            step.progress(done, total, "rows")

        yield advance


def _write_file(plan: _Plan, index: int, path: Path, advance: Callable[[int], None]) -> None:
    # hidden, so that neither discovery nor Spark takes it for a source file
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        writer = _open_writer(unfinished, plan)
        try:
            for block in _blocks(plan, index):
                writer.write_batch(draw(block, plan.schema, plan.null_rates))
                advance(block.rows)
        finally:
            writer.close()
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _open_writer(path: Path, plan: _Plan) -> _Writer:
    writer: _Writer
    if plan.format == "csv":
        writer = pv.CSVWriter(path, plan.schema)
    else:
        texts: Any = [*(field.name for field in plan.schema if pa.types.is_string(field.type)), "stops.list.element"]
        writer = pq.ParquetWriter(path, plan.schema, compression="snappy", use_dictionary=texts)
    return writer


def _blocks(plan: _Plan, file: int) -> Iterator[Block]:
    for index, start in enumerate(range(0, plan.rows, BLOCK_ROWS)):
        count = min(BLOCK_ROWS, plan.rows - start)
        yield Block(plan.seed, file, index, count, first_id=file * plan.rows + start + 1)
