"""Random ingests on real Spark and Nessie, their audits compared with a slow reference in plain Python.

Each case makes a table of random columns, partitioned and measured at random, and changes it a few times: files are
ingested, rows appended, overwritten and deleted in transactions, and between them the table's columns and partitions
change. Every verdict and every number of failing rows must be what Python counts in the same rows, a batch that fails
must leave ``main`` alone, and in the end the table must hold the source's rows, to the last bit.
"""

from __future__ import annotations

import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakegate.checks import validate_checks
from lakegate.errors import AuditFailedError, CheckError
from lakegate.lake import Lake, connect
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.schema import Column, Schema
from lakegate.spark.sessions import CATALOG
from proofs import encodings
from proofs.asked import Asked, Row
from proofs.diverted import divert, some_diverting
from proofs.reference import ask_all
from proofs.result import ProofResult
from proofs.values import KINDS, Kind, decimals, some_kind, written
from support.lakes import components_of, session_of

_NAMES = (
    "id",
    "Fare",
    "a.b",
    "two words",
    "rows",
    "__lakegate_key_0",
    "tick`s",
    "select",
    "\U0001f600",
    "count",
    "k0",
    "total",
)
LONG = 150
"""Tables of the long form, some four hundred ingests."""
SHORT = 2

_WITH_EXAMPLES = 5
_EXAMPLES_OF_SHORT = 6
"""Of how many failing checks the short form fetches the examples of one: which ones, chance decided by their order."""
_METRICS = ("none", "counts", "full", "truncate(2)", "truncate(16)")
_WIDER = {"int": "long", "tiny": "int", "float": "double"}
_SPARKS = re.compile(r"\b(?:bigint|timestamp_ntz|timestamp)\b(?!:)")
_ICEBERG = {"bigint": "long", "timestamp_ntz": "timestamp", "timestamp": "timestamptz"}


def prove(
    home: Path, cases: int, *, seed: int, namespace: str = "exactness", tell: Callable[[str], None] | None = None
) -> ProofResult:
    """Try ``cases`` tables, in the project in ``home``."""
    failures: list[str] = []
    seen: Counter[str] = Counter()
    with connect(home) as lake:
        for number in range(cases):
            # Examples take a query each, and are as often right as wrong: those of some cases are enough.
            if number % _WITH_EXAMPLES:
                _fetch_examples(lake, every=0)
            else:
                _fetch_examples(lake, every=1 if cases > SHORT else _EXAMPLES_OF_SHORT)
            case = Case(lake, home / "sources" / namespace, f"{namespace}.t{number}", random.Random(f"{seed}:{number}"))
            try:
                case.run()
            except Exception:  # noqa: BLE001 - whatever it is, it belongs to this case
                case.failures.append(traceback.format_exc(limit=-6))
            try:
                wrong, looked_at = encodings.judge(lake, case.folder, f"{namespace}.texts{number}", case.r)
                case.failures += wrong
                case.seen += looked_at
            except Exception:  # noqa: BLE001 - as above
                case.failures.append(traceback.format_exc(limit=-6))
            failures += [f"seed {seed}, case {number}: {failure}" for failure in case.failures]
            seen += case.seen
            if tell is not None:
                tell(f"case {number}: {dict(case.seen)} {case.failures}")
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(seen.items()))
    return ProofResult("exactness", cases, failures, told)


@dataclass
class Case:
    """One table and what happens to it."""

    lake: Lake
    folder: Path
    table: str
    r: random.Random
    failures: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        names = self.r.sample(_NAMES, self.r.randint(1, 5))
        self._kinds = {name: some_kind(self.r) for name in names}
        self._pools = {name: [kind.draw(self.r) for _ in range(8)] for name, kind in self._kinds.items()}
        self._rows: list[Row] = []
        self._files = 0
        self._waiting = 0
        self._parents: tuple[str, str, Kind, Sequence[Any]] | None = None

    def run(self) -> None:
        """Make the table, change it, and look whether all is as it must be."""
        partition_by = self._partitioning()
        self._make_parent()
        if self.r.random() < 0.3:
            self._create(partition_by)
            partition_by = ()
        for _ in range(self.r.randint(2, 4)):
            ways = (self._ingest, self._divert, self._append, self._delete, self._overwrite)
            # No table is replaced while rows of it wait in quarantine.
            self.r.choices(ways, (8, 3, 1, 1, 0 if self._waiting else 1))[0](partition_by)
            if self._rows and self.r.random() < 0.3:
                self._evolve()
        self._compare_rows()

    # What happens to the table.

    def _ingest(self, partition_by: Sequence[str]) -> None:
        files = [self._batch() for _ in range(self.r.randint(1, 3))]
        rows = [row for file in files for row in file]
        asked, checks = self._asked(rows, self._rows)
        types = {name: self.r.choice(kind.arrow) for name, kind in self._kinds.items()}
        run = self.lake.ingest(
            self.table,
            [str(self._write(file, types)) for file in files],
            checks=checks,
            partition_by=partition_by,
            on_failure="drop",
            on_rejected="return",
        )
        if run.report is not None:
            self._compare(asked, checks, [run.report], len(rows), "ingest")
        self._note(run.status, checks, asked, rows, keep=True)

    def _divert(self, partition_by: Sequence[str]) -> None:
        files = [self._batch() for _ in range(self.r.randint(1, 2))]
        rows = [row for file in files for row in file]
        diverting = some_diverting(self.r, self._kinds, rows, self._rows)
        left = divert(diverting, self._kinds, rows)
        asked, checks = self._asked(left, self._rows)
        names = {str(check) for check in checks}
        diverting = [one for one in diverting if str(one.check) not in names]
        types = {name: self.r.choice(kind.arrow) for name, kind in self._kinds.items()}
        run = self.lake.ingest(
            self.table,
            [str(self._write(file, types)) for file in files],
            checks=[*checks, *(one.check for one in diverting)],
            partition_by=partition_by,
            on_failure="drop",
            on_rejected="return",
        )
        report = next(one for one in run.reports if one.table == self.table)
        own = report.results[len(checks) :]
        self._compare(
            asked, checks, [report.model_copy(update={"results": report.results[: len(checks)]})], len(left), "diverted"
        )
        for one, result in zip(diverting, own, strict=True):
            found = (result.verdict, result.quarantined, result.failing_rows, result.total_rows)
            wanted = (
                "fail" if one.blocks else "pass" if one.total or one.check.where is None else "skipped",
                0 if one.blocks else one.set_aside,
                one.failing,
                one.total,
            )
            self.seen["verdicts of quarantine"] += 1
            if found != wanted:
                self.failures.append(f"quarantine: {result.check} of {len(rows)} rows: {found}, not {wanted}")
        self.seen["rows set aside"] += len(rows) - len(left)
        self._waiting += len(rows) - len(left) if run.status == "published" else 0
        self._note(run.status, checks, asked, left, keep=True, rejects=any(one.blocks for one in diverting))

    def _append(self, partition_by: Sequence[str]) -> None:
        parts = [self._batch() for _ in range(self.r.randint(1, 2))]
        rows = [row for part in parts for row in part]
        asked, checks = self._asked(rows, self._rows)
        self._transact(
            lambda tx: [tx.append(self.table, self._arrow(part), partition_by=partition_by) for part in parts],
            asked,
            checks,
            rows,
            keep=True,
        )

    def _overwrite(self, partition_by: Sequence[str]) -> None:
        rows = self._batch()
        asked, checks = self._asked(rows, [])
        self._transact(
            lambda tx: tx.overwrite(self.table, self._arrow(rows), partition_by=partition_by),
            asked,
            checks,
            rows,
            keep=not self._rows,
        )

    def _delete(self, _: Sequence[str]) -> None:
        name = self.r.choice(sorted(self._kinds))
        kept = [row for row in self._rows if row[name] is not None]
        if not kept or len(kept) == len(self._rows):
            return
        asked, checks = self._asked(kept, [])
        self._transact(
            lambda tx: tx.sql(f"DELETE FROM {self._sql} WHERE {quote(name)} IS NULL"), asked, checks, kept, keep=False
        )

    def _transact(
        self,
        change: Callable[[Any], object],
        asked: Sequence[Asked],
        checks: Sequence[Check],
        rows: Sequence[Row],
        *,
        keep: bool,
    ) -> None:
        try:
            with self.lake.transaction(on_failure="drop") as tx:
                change(tx)
                tx.check(self.table, *checks)
        except AuditFailedError:
            pass
        self._compare(asked, checks, tx.run.reports, len(rows), "transaction")
        self._note(tx.run.status, checks, asked, rows, keep=keep)

    def _note(
        self,
        status: str,
        checks: Sequence[Check],
        asked: Sequence[Asked],
        rows: Sequence[Row],
        *,
        keep: bool,
        rejects: bool = False,
    ) -> None:
        fails = rejects or any(
            check.severity == "error" and one.expected == "fail" for check, one in zip(checks, asked, strict=True)
        )
        if status != ("rejected" if fails else "published"):
            self.failures.append(f"the run is {status}, although {'a' if fails else 'no'} check fails")
        self.seen[status] += 1
        if status == "published":
            self._rows = [*self._rows, *rows] if keep else list(rows)

    def _evolve(self) -> None:
        name = self.r.choice(sorted(self._kinds))
        kind = self._kinds[name]
        change = self.r.choice(("rename", "first", "widen", "partition", "unpartition", "metrics", "add"))
        match change:
            case "rename":
                new = self.r.choice([one for one in _NAMES if one not in self._kinds])
                self._alter(f"RENAME COLUMN {quote(name)} TO {quote(new)}")
                self._kinds = {new if one == name else one: kind for one, kind in self._kinds.items()}
                self._pools[new] = self._pools[name]
                self._rows = [{new if one == name else one: value for one, value in row.items()} for row in self._rows]
            case "first":
                self._alter(f"ALTER COLUMN {quote(name)} FIRST")
            case "widen":
                self._widen(name, kind)
            case "partition" if kind.partitions and name.isascii() and name.isidentifier():
                self._alter(f"ADD PARTITION FIELD {self.r.choice(kind.partitions).format(quote(name))}")
            case "unpartition":
                fields = self.lake.table(self.table).metadata.partition_by
                if fields and "." not in fields[0] and "`" not in fields[0] and " " not in fields[0]:
                    self._alter(f"DROP PARTITION FIELD {fields[0] if '(' in fields[0] else quote(fields[0])}")
            case "metrics":
                self._alter(f"SET TBLPROPERTIES ('write.metadata.metrics.default' = '{self.r.choice(_METRICS)}')")
            case "add":
                new, added = self.r.choice([one for one in _NAMES if one not in self._kinds]), some_kind(self.r)
                self._alter(f"ADD COLUMN {quote(new)} {added.spark}")
                self._kinds[new], self._pools[new] = added, [added.draw(self.r) for _ in range(8)]
                self._rows = [{**row, new: None} for row in self._rows]

    def _widen(self, name: str, kind: Kind) -> None:
        wider = self._wider(kind)
        if wider.spark != kind.spark:
            self._alter(f"ALTER COLUMN {quote(name)} TYPE {wider.spark}")
            self._kinds[name] = wider
            self._pools[name] += [wider.draw(self.r) for _ in range(4)]

    @staticmethod
    def _wider(kind: Kind) -> Kind:
        if kind.spark.startswith("decimal"):
            precision, scale = map(int, kind.spark.removeprefix("decimal(").rstrip(")").split(","))
            return decimals(min(38, precision + 1), scale)
        return next((KINDS[wide] for narrow, wide in _WIDER.items() if KINDS[narrow] is kind), kind)

    # What the table is made of.

    @property
    def _sql(self) -> str:
        return TableIdentifier.parse(self.table).sql(CATALOG).partition(".")[2]

    @property
    def _session(self) -> Any:
        return session_of(components_of(self.lake))

    def _alter(self, change: str) -> None:
        try:
            self._session.sql(f"ALTER TABLE {CATALOG}.{self._sql} {change}")
        except Exception as error:
            if "partition" not in str(error).lower():
                raise
            self.seen["partition changes refused"] += 1
        else:
            self.seen["schema changes"] += 1

    def _partitioning(self) -> tuple[str, ...]:
        for name in self.r.sample(sorted(self._kinds), len(self._kinds)):
            kind = self._kinds[name]
            plain = [text for text in kind.partitions if not text.startswith("truncate")]
            if plain and name.isascii() and name.isidentifier() and self.r.random() < 0.4:
                return (self.r.choice(plain).format(name),)
        return ()

    def _make_parent(self) -> None:
        name = self.r.choice(sorted(self._kinds))
        kind, pool = self._kinds[name], self._pools[name]
        if not kind.groups or self.r.random() < 0.4:
            return
        there = [None, *self.r.sample(pool, 5)]
        kind = self.r.choice((kind, self._wider(kind)))
        path = self.folder / f"{self.table}-parent.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"K": pa.array(there, kind.arrow[0])}), path)
        parent = f"{self.table}_parent"
        self.lake.ingest(parent, str(path))
        self._parents = (parent, "K", kind, there)

    def _create(self, partition_by: Sequence[str]) -> None:
        columns = ", ".join(f"{quote(name)} {kind.spark}" for name, kind in self._kinds.items())
        by = [
            text.format(quote(name))
            for name, kind in self._kinds.items()
            for text in kind.partitions
            if name.isidentifier()
        ]
        partitioned = f"PARTITIONED BY ({self.r.choice(by)})" if partition_by and by else ""
        metrics = f"TBLPROPERTIES ('write.metadata.metrics.default' = '{self.r.choice(_METRICS)}')"
        namespace = quote(self.table.partition(".")[0])
        self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{namespace}")
        self._session.sql(f"CREATE TABLE {CATALOG}.{self._sql} ({columns}) USING iceberg {partitioned} {metrics}")
        self.seen["tables with metrics of their own"] += 1

    def _batch(self) -> list[Row]:
        shares = {name: self.r.choice((0.0, 0.0, 0.3, 1.0)) for name in self._kinds}
        pools = {name: self.r.sample(pool, self.r.randint(1, len(pool))) for name, pool in self._pools.items()}
        return [
            {name: None if self.r.random() < shares[name] else self.r.choice(pools[name]) for name in self._kinds}
            for _ in range(self.r.choice((1, 3, 12)))
        ]

    def _arrow(self, rows: Sequence[Row]) -> pa.Table:
        return pa.table(
            {name: pa.array([row[name] for row in rows], kind.arrow[0]) for name, kind in self._kinds.items()}
        )

    def _write(self, rows: Sequence[Row], types: Mapping[str, pa.DataType]) -> Path:
        self._files += 1
        path = self.folder / f"{self.table}-{self._files}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        shuffled = self.r.sample(sorted(columns), len(columns))
        pq.write_table(
            pa.table({name: columns[name] for name in shuffled}), path, row_group_size=self.r.choice((2, 1000))
        )
        return path

    # What is asked, and what must come of it.

    def _asked(self, rows: Sequence[Row], others: Sequence[Row]) -> tuple[list[Asked], list[Check]]:
        schema = Schema(columns=tuple(Column(name=name, type=_iceberg(kind)) for name, kind in self._kinds.items()))
        asked = []
        for one in ask_all(self.r, self._kinds, rows, others, self._parents):
            try:
                validate_checks([one.check], schema)
            except CheckError:
                self.seen[f"{one.check.kind} refused"] += 1  # nothing lies in the range, no value of the list can occur
                continue
            asked.append(one)
        asked = list({str(one.check): one for one in asked}.values())
        lenient = self.r.random() < 0.8
        return asked, [
            one.check.model_copy(update={"severity": "warn"}) if lenient and one.expected == "fail" else one.check
            for one in asked
        ]

    def _compare(
        self, asked: Sequence[Asked], checks: Sequence[Check], reports: Sequence[AuditReport], rows: int, by: str
    ) -> None:
        results = [result for report in reports for result in report.results]
        if len(results) != len(asked):
            self.failures.append(f"{by}: {len(results)} results for {len(asked)} checks: {[str(c) for c in checks]}")
            return
        for one, result in zip(asked, results, strict=True):
            self.seen[f"verdicts by {result.evidence}"] += 1
            found = (result.verdict, result.failing_rows, result.total_rows)
            total = rows if one.total is None else one.total
            if found != (one.expected, one.failing, total):
                self.failures.append(
                    f"{by}: {result.check} by {result.evidence}: {found}, but {one.failing} of {total} rows fail: "
                    f"{one.expected} ({result.detail})"
                )
            shows = result.verdict == "fail" and one.failing and one.check.kind != "row_count"
            # Of a report with very many failing checks, the others say that they have none.
            if shows and not result.examples and "failing checks get examples" not in (result.detail or ""):
                self.failures.append(f"{by}: {result.check} fails without examples")

    def _compare_rows(self) -> None:
        if not self._rows:
            return
        names = sorted(self._kinds)
        found = self.lake.query(f"SELECT {', '.join(map(quote, names))} FROM {self._sql}").to_arrow()
        wanted = Counter(_row(row, names) for row in self._rows)
        self.seen["rows read back"] += found.num_rows
        read = Counter(_row(row, names) for row in found.to_pylist())
        if read != wanted:
            self.failures.append(
                f"main holds {list((read - wanted).items())[:5]} too much and lacks {list((wanted - read).items())[:5]}"
            )


def _fetch_examples(lake: Lake, *, every: int) -> None:
    """Have the engine fetch what it is asked for at each ``every``-th time; with 0, never."""
    engine: Any = components_of(lake).engine
    asked = count()
    for name in ("examples", "known_examples", "orphan_examples", "query_examples"):
        vars(engine).pop(name, None)
        if every != 1:
            setattr(engine, name, partial(_fetched, getattr(engine, name), asked, every))


def _fetched(fetch: Callable[..., Any], asked: Iterator[int], every: int, *given: Any) -> Any:
    return fetch(*given) if every and next(asked) % every == 0 else ({"row": "not fetched"},)


def _row(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(written(row[name]) for name in names)


def _iceberg(kind: Kind) -> str:
    if kind.spark.startswith("decimal"):
        return kind.spark.replace(",", ", ")
    words = kind.spark.replace("array<", "list<").replace(":", ": ").replace(",", ", ")
    return _SPARKS.sub(lambda found: _ICEBERG[found[0]], words)
