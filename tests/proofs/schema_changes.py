"""Schema changes: histories of SQL of every kind by two actors at once, on real Spark and Nessie.

Each actor writes in transactions, or on branches made by hand that lakegate is then asked to publish; their statements
alternate as a seed says. Beside it, on a branch that nobody else knows, a plain session does one published run after
the other. What is on main must always be what is there, and no check that passed may be false on it. A run that was not
published must leave main as it was.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from pyiceberg.table import StaticTable

from lakegate.components import Components
from lakegate.config import TableSettings, load_settings
from lakegate.errors import LakegateError, OutcomeUnknownError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake
from lakegate.local.state import spark_url
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref
from lakegate.progress import SilentNarrator
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import CATALOG, end_session, remote_sessions, session_settings
from lakegate.wap.transaction import Transaction
from proofs.result import ProofResult
from proofs.sql_steps import (
    APPENDS,
    BY_HAND,
    BY_TRANSACTION,
    CHANGES_NO_ROWS,
    RULES,
    WEIGHTS,
    Row,
    Rule,
    Step,
    creation,
    insertion,
    insertion_of,
    statements,
)
from support.lakes import components_of

Tell = Callable[[str], object]
_RUNS = 4
_SHRINKS = 12


@dataclass(frozen=True)
class Plan:
    """One run: who does it, how, and what it is to be checked for."""

    mode: Literal["transaction", "branch"]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Move:
    """What happens next: run ``run`` begins, does a step, or is published."""

    run: int
    what: Literal["begin", "publish"] | Step


@dataclass(frozen=True)
class History:
    """All of one case."""

    seed: int
    merge_on_read: bool
    partitioned: bool
    plans: tuple[Plan, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        """Return it for people who want to see it again."""
        modes = f"merge-on-read {self.merge_on_read}, partitioned {self.partitioned}"
        plans = [f"run {at}: {plan.mode}, {[rule.text for rule in plan.rules]}" for at, plan in enumerate(self.plans)]
        moves = [f"{move.run}:{move.what if isinstance(move.what, str) else move.what.kind}" for move in self.moves]
        return "\n  ".join([f"seed {self.seed}: {modes}", *plans, " ".join(moves)])


@dataclass(frozen=True)
class Contents:
    """What a table is to its readers: types and rows by column name, and the property that histories set."""

    columns: tuple[tuple[str, str], ...]
    rows: Counter[tuple[Any, ...]]
    note: str | None

    def as_rows(self) -> list[Row]:
        """Return the rows by name."""
        names = [name for name, _ in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows.elements()]


@dataclass
class Executed:
    """An executed statement: its text, or the label of the snapshot that it rolled back to."""

    label: int
    sql: str | None
    back_to: int | None = None
    silent: bool = False


@dataclass
class ProofRun:
    """A run in progress, or published."""

    number: int
    plan: Plan
    began: int
    branch: str = ""
    transaction: Transaction | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    done: list[Executed] = field(default_factory=list)
    only_inserts: bool = True
    published: int = 0


class BrokenPromiseError(AssertionError):
    """What the history came to is not what it must be."""


def prove(
    home: Path,
    histories: int,
    seed: int,
    *,
    namespace: str = "changes",
    within_s: float | None = None,
    tell: Tell = len,
) -> ProofResult:
    """Try so many histories in the project in ``home``, or as many as there is time for."""
    until = None if within_s is None else time.monotonic() + within_s
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    tried = 0
    with Stage(home, namespace) as stage:
        for number in range(histories):
            if until is not None and time.monotonic() > until:
                break
            history = draw_history(seed * 100_003 + number)
            tried += 1
            failure = stage.failure_of(history, outcomes)
            if failure is not None:
                tell(f"{failure}\n  {history}")
                smallest, said = _shrunk(stage, history, failure)
                failures.append(f"{said}\n  {smallest}")
            tell(f"history {number + 1}: {dict(outcomes)}")
    details = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
    return ProofResult("schema-changes", tried, failures, details)


def draw_history(seed: int) -> History:
    """Return the history of a seed: two actors, two runs each, one after the other."""
    draw = random.Random(seed)
    plans = tuple(
        Plan(draw.choice(("transaction", "branch")), tuple(draw.sample(list(RULES), draw.choice((0, 1, 1, 2)))))
        for _ in range(_RUNS)
    )
    actors: list[list[Move]] = [[], []]
    for number, plan in enumerate(plans):
        moves = [Move(number, "begin"), *(Move(number, step) for step in _steps(draw, plan)), Move(number, "publish")]
        actors[number % 2] += moves
    merged: list[Move] = []
    while any(actors):
        merged.append(draw.choice([actor for actor in actors if actor]).pop(0))
    return History(seed, draw.random() < 0.5, draw.random() < 0.4, plans, tuple(merged))


def _steps(draw: random.Random, plan: Plan) -> Iterator[Step]:
    refused = BY_HAND if plan.mode == "transaction" else BY_TRANSACTION
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in refused}
    for kind in draw.choices(list(weights), list(weights.values()), k=draw.choice((1, 1, 2, 2, 3))):
        yield Step(kind, draw.randrange(10**6))


def _shrunk(stage: Stage, history: History, failure: str) -> tuple[History, str]:
    """Return the history without the steps that it fails without as well, and how that fails."""
    tries = 0
    for move in reversed(history.moves):
        if isinstance(move.what, str) or tries == _SHRINKS:
            continue
        tries += 1
        smaller = replace(history, moves=tuple(one for one in history.moves if one is not move))
        found = stage.failure_of(smaller, Counter())
        if found is not None:
            history, failure = smaller, found
    return history, failure


class Stage:
    """The lake as each of the two actors has it open, and a table for each history."""

    def __init__(self, home: Path, namespace: str) -> None:
        self._namespace = namespace
        self._tables = 0
        self._opened = ExitStack()
        settings = load_settings(home)
        self.lakes = [
            self._opened.enter_context(
                Lake(
                    Components(
                        home, settings.model_copy(update={"tables": {}}), session=None, narrator=SilentNarrator()
                    )
                )
            )
            for _ in range(2)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def failure_of(self, history: History, outcomes: Counter[str]) -> str | None:
        """Return how a history breaks a promise; ``None`` when it keeps them all."""
        self._tables += 1
        with Case(self.lakes, history, TableIdentifier.parse(f"{self._namespace}.t{self._tables}")) as case:
            try:
                case.play(outcomes)
            except BrokenPromiseError as error:
                return str(error)
        return None


class Case:
    """One history on one table of its own."""

    def __init__(self, lakes: Sequence[Lake], history: History, table: TableIdentifier) -> None:
        self._lakes = lakes
        self._history = history
        self._table = table
        self._sessions: dict[str, Any] = {}
        self._branches: list[str] = []
        self._labels = 0
        self._snapshots: dict[int, int] = {}
        self._runs: dict[int, ProofRun] = {}
        self._published: list[ProofRun] = []
        self._clock = 0
        self.reasons: list[str] = []
        self._replayed: dict[str, dict[int, int]] = {}
        self._root = ""
        self._base: dict[int, int] = {}
        self._serial = ""
        self._main: Contents | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs.values():
            given_up = BrokenPromiseError("the history is over")
            with suppress(LakegateError, BrokenPromiseError):
                run.stack.__exit__(BrokenPromiseError, given_up, None)
        for branch in self._branches:
            with suppress(LakegateError):
                self._lakes[0].branches.delete(branch)
        for session in self._sessions.values():
            end_session(session)

    def play(self, outcomes: Counter[str]) -> None:
        """Make every move, and look at main after each.

        Raises:
            BrokenPromiseError: When it is not as it must be.
        """
        self._make_table()
        self._root, self._base = self._head(), dict(self._snapshots)
        self._main = self._contents(MAIN)
        self._serial = self._scratch("serial-0")
        for move in self._history.moves:
            self._clock += 1
            before = self._pointer(MAIN)
            if move.what == "begin":
                run = self._runs[move.run] = ProofRun(move.run, self._history.plans[move.run], began=self._clock)
                self._begin(run)
            elif move.what == "publish":
                outcomes[self._publish(self._runs[move.run])] += 1
                continue
            else:
                assert isinstance(move.what, Step)
                self._step(self._runs[move.run], move.what)
            if self._pointer(MAIN) != before:
                raise BrokenPromiseError(f"main moved when run {move.run} did {move.what}")

    def _make_table(self) -> None:
        """Make the table on main with some rows, as somebody does who has never heard of lakegate."""
        history, table = self._history, str(self._table)
        session = self._session(self._lakes[0], MAIN)
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(self._table.namespace)}").collect()
        session.sql(creation(table, merge_on_read=history.merge_on_read, partitioned=history.partitioned)).collect()
        columns = self._columns(MAIN)
        for number in (1, 2):
            session.sql(insertion(history.seed % 1000 + number, table, columns, clean=True)).collect()
            self._labels += 1
            self._snapshots[self._pointer(MAIN).snapshot_id] = self._labels

    # What runs do

    def _begin(self, run: ProofRun) -> None:
        lake = self._lake(run)
        if run.plan.mode == "transaction":
            run.transaction = run.stack.enter_context(lake.transaction(f"run {run.number}"))
            run.branch = run.transaction.branch
            run.transaction.check(str(self._table), *(rule.text for rule in run.plan.rules))
        else:
            run.branch = f"by-hand/{self._table}-{run.number}"
            lake.branches.create(run.branch)
        self._branches.append(run.branch)

    def _step(self, run: ProofRun, step: Step) -> None:
        if step.kind == "rollback":
            self._roll_back(run, step)
            return
        if step.kind == "expire":
            self._expire_between(run, step)
            return
        texts = statements(step, str(self._table), self._columns(run.branch), CATALOG)
        before = self._contents(run.branch) if step.kind == "merge" else None
        for text in texts:
            if not self._do(run, text, silent=step.kind in CHANGES_NO_ROWS):
                return
            if before is not None and self._only_added(run.branch, before):
                # The table's metadata says no more than of an INSERT. That a transaction read the table is known
                # besides; of a branch made by hand nobody knows it.
                if run.transaction is None:
                    run.done[-1] = replace(run.done[-1], sql=insertion_of(text))
            else:
                run.only_inserts &= step.kind in APPENDS

    def _only_added(self, branch: str, before: Contents) -> bool:
        after = self._contents(branch)
        return after is not None and after.columns == before.columns and not before.rows - after.rows

    def _do(self, run: ProofRun, text: str, *, silent: bool = False) -> bool:
        """Run one statement; return whether Spark and lakegate accepted it."""
        try:
            if run.transaction is not None:
                run.transaction.sql(text).collect()
            else:
                self._session(self._lake(run), run.branch).sql(text).collect()
        except Exception:  # noqa: BLE001 - Spark has many ways to say no; what was not done is not replayed
            return False
        self._labels += 1
        run.done.append(Executed(self._labels, text, silent=silent))
        self._note_snapshot(run)
        return True

    def _roll_back(self, run: ProofRun, step: Step) -> None:
        pointer = self._pointer(run.branch)
        if pointer is None:
            return
        snapshots = self._context.reader.snapshots(pointer)
        known = [one.snapshot_id for one in snapshots if one.snapshot_id in self._snapshots]
        targets = [one for one in known if one != pointer.snapshot_id]
        if not targets:
            return
        target = targets[step.number % len(targets)]
        call = f"CALL {CATALOG}.system.rollback_to_snapshot('{self._table}', {target})"
        try:
            self._session(self._lake(run), run.branch).sql(call).collect()
        except Exception:  # noqa: BLE001 - as above
            return
        self._labels += 1
        run.done.append(Executed(self._labels, None, back_to=self._snapshots[target]))
        run.only_inserts = False

    def _expire_between(self, run: ProofRun, step: Step) -> None:
        """Insert twice, and have the table forget the snapshot in between."""
        table, columns = str(self._table), self._columns(run.branch)
        if not columns or not self._do(run, insertion(step.number, table, columns)):
            return
        between = self._pointer(run.branch).snapshot_id
        if self._do(run, insertion(step.number + 1, table, columns)):
            self._do(run, f"ALTER TABLE {table} SET TBLPROPERTIES ('gc.enabled'='true')", silent=True)
            forget = f"table => '{table}', snapshot_ids => array({between})"
            run.only_inserts &= not self._do(run, f"CALL {CATALOG}.system.expire_snapshots({forget})", silent=True)

    def _note_snapshot(self, run: ProofRun) -> None:
        pointer = self._pointer(run.branch)
        if pointer is not None:
            self._snapshots.setdefault(pointer.snapshot_id, run.done[-1].label)

    def _publish(self, run: ProofRun) -> str:
        before = self._pointer(MAIN)
        outcome = self._end(run)
        after = self._pointer(MAIN)
        if outcome != "published":
            if after != before:
                raise BrokenPromiseError(f"run {run.number} was {outcome}, and moved main")
            return outcome
        run.published = self._clock
        self._published.append(run)
        then, self._main = self._main, self._contents(MAIN)
        self._require_serial()
        self._require_checks(run, then, self._main)
        return outcome

    def _end(self, run: ProofRun) -> str:
        try:
            if run.transaction is not None:
                run.stack.close()
                return "published" if run.transaction.run.status == "published" else "nothing"
            rules = tuple(rule.text for rule in run.plan.rules)
            lake = self._lake(run)
            lake.settings.tables[str(self._table)] = TableSettings(checks=rules)
            try:
                ended = lake.publish(run.branch)
            finally:
                lake.settings.tables.clear()
        except OutcomeUnknownError as error:
            raise BrokenPromiseError(f"run {run.number} ended as nobody knows: {error.message}") from error
        except LakegateError as error:
            names = {"audit-failed": "rejected", "not-replayable": "conflict", "conflict": "conflict"}
            self.reasons.append(f"run {run.number}: {error.message.splitlines()[0]}")
            return names.get(error.code, f"refused ({error.code})")
        return ended.status

    # What must be true

    def _require_serial(self) -> None:
        """Compare main with the published runs one after the other, in an order that agrees with their times."""
        last = self._published[-1]
        problem = self._replay(self._serial, last) or self._difference(self._serial)
        if problem is None:
            return
        for place in range(len(self._published) - 2, -1, -1):
            if self._published[place].published <= last.began:
                break
            order = [*self._published[:place], last, *self._published[place:-1]]
            branch = self._scratch(f"serial-{self._labels}-{place}")
            if all(self._replay(branch, run) is None for run in order) and self._difference(branch) is None:
                self._published, self._serial = order, branch
                return
        told = "\n  ".join(
            f"run {run.number}: {[one.sql or one.back_to for one in run.done]}" for run in self._published
        )
        raise BrokenPromiseError(f"after run {last.number}, main is no serial outcome: {problem}\n  {told}")

    def _replay(self, branch: str, run: ProofRun) -> str | None:
        """Do what a run did, in a plain session; return what can't be done."""
        session = self._session(self._lakes[0], branch)
        for one in run.done:
            text = one.sql
            if one.back_to is not None:
                snapshot = self._replayed[branch].get(one.back_to)
                text = f"CALL {CATALOG}.system.rollback_to_snapshot('{self._table}', {snapshot})"
            if one.silent or text is None:
                continue
            try:
                session.sql(text).collect()
            except Exception as error:  # noqa: BLE001 - as above
                return f"{text}: {str(error).splitlines()[0][:300]}"
            pointer = self._pointer(branch)
            if pointer is not None:
                self._replayed[branch][one.label] = pointer.snapshot_id
        return None

    def _difference(self, branch: str) -> str | None:
        wanted = self._contents(branch)
        found = self._main
        if wanted == found:
            return None
        if wanted is None or found is None:
            return f"the table is {'there' if found else 'gone'}"
        if wanted.columns != found.columns or wanted.note != found.note:
            return f"{found.columns}, note {found.note}, instead of {wanted.columns}, note {wanted.note}"
        return f"rows {dict(found.rows - wanted.rows)} too much, {dict(wanted.rows - found.rows)} missing"

    def _require_checks(self, run: ProofRun, before: Contents | None, after: Contents | None) -> None:
        """Ask the reference whether what passed is true: of the rows that came, or of the whole table."""
        if after is None:
            return
        every = after.as_rows()
        added = every
        if run.only_inserts and before is not None and before.columns == after.columns:
            added = replace(after, rows=after.rows - before.rows).as_rows()
        for rule in run.plan.rules:
            if rule.column is not None and rule.column not in dict(after.columns):
                raise BrokenPromiseError(f"run {run.number}: {rule.text} passed without its column")
            if not _holds(rule, added, every):
                raise BrokenPromiseError(
                    f"run {run.number}: {rule.text} passed and is false on main: {added}\n  "
                    f"{[one.sql or one.back_to for one in run.done]}"
                )

    # How the lake is looked at

    @property
    def _context(self) -> Any:
        return components_of(self._lakes[0]).context

    def _lake(self, run: ProofRun) -> Lake:
        return self._lakes[run.number % 2]

    def _head(self) -> str:
        return str(self._context.catalog.get_ref(MAIN).hash)

    def _pointer(self, ref: str) -> Any:
        return self._context.catalog.get_table(self._table, self._context.catalog.get_ref(ref))

    def _columns(self, ref: str) -> dict[str, str]:
        pointer = self._pointer(ref)
        return {} if pointer is None else _columns(self._context.reader.metadata(pointer).table_schema)

    def _contents(self, ref: str) -> Contents | None:
        """Read the table by PyIceberg, which is neither Spark nor lakegate."""
        pointer = self._pointer(ref)
        if pointer is None:
            return None
        table = StaticTable.from_metadata(str(local_path(pointer.metadata_location)))
        columns = {field.name: str(field.field_type) for field in table.schema().fields}
        names = sorted(columns)
        rows = table.scan().to_arrow().select(names).to_pylist()
        return Contents(
            tuple((name, columns[name]) for name in names),
            Counter(tuple(row[name] for name in names) for row in rows),
            table.properties.get("note"),
        )

    def _session(self, lake: Lake, branch: str) -> Any:
        """Return a plain Spark session whose catalog is bound to a branch, as everybody may have one."""
        if branch not in self._sessions:
            components = components_of(lake)
            settings = session_settings(components.spark_options(Ref(name=branch, hash="", kind="branch")))
            session = self._sessions[branch] = remote_sessions(spark_url(components.stack.use()))(settings)
            session.sql(f"SET CATALOG {CATALOG}")
        return self._sessions[branch]

    def _scratch(self, name: str) -> str:
        """Make a branch of main as it was before the history, for a replay."""
        branch = f"replay/{self._table}-{name}"
        self._lakes[0].branches.create(branch, at=self._root)
        self._branches.append(branch)
        self._replayed[branch] = {label: snapshot for snapshot, label in self._base.items()}
        return branch


def _holds(rule: Rule, added: Sequence[Row], every: Sequence[Row]) -> bool:
    if rule.column == "a" and any(isinstance(row["a"], str) for row in added):
        return True  # texts are ordered in another way; what a range means of them is not asked here
    if not rule.whole or len(added) == len(every):
        return rule.holds(added)
    keys = {row["id"] for row in added}
    return rule.holds([row for row in every if row["id"] in keys])


def _columns(schema: Any) -> dict[str, str]:
    return {column.name: str(column.type) for column in schema.columns}


def _engine(lake: Lake) -> SparkEngine:
    engine = components_of(lake).engine
    assert isinstance(engine, SparkEngine)
    return engine
