"""What must be true of the target, reckoned from what was asked for alone.

The model knows the operations' rows and the order of the commits. Of each commit it works out what the tables must
hold after it, and compares: readers of any commit see whole runs, audited ones, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lakegate.model.refs import Commit
from lakegate.model.run import RUN_ID_PROPERTY, Slice
from proofs.operations import BAD_FILE, TABLES, CheckSet, File, Ingest, Step, Transact
from support.ledger_support import event_in

Row: TypeAlias = tuple[int | None, int | None, str]
"""Key, reference to a key of the first table, and a text that no other row has."""
Rows: TypeAlias = Counter[Row]
State: TypeAlias = Mapping[str, Rows]
PARENT = TABLES[0]


def uri_of(number: int) -> str:
    return f"file:///in/{number}.parquet"


def content(file: File) -> list[Row]:
    """Return the rows of a source file. Versions of a path share a key; so do neighbours."""
    number, version = file
    first: Row = (None if number == BAD_FILE else 2 * number, None if version else number, f"f{number}.v{version}.0")
    return [first, (2 * number + 1 + version, number, f"f{number}.v{version}.1")]


def written(run_id: str, index: int, step: Step, counted: int) -> list[Row]:
    """Return the rows that a step of a transaction writes, where its source has ``counted`` rows."""
    keys = (100 + counted,) if step.kind == "derive" else step.keys
    return [(key, key, f"{run_id}.{index}.{key}") for key in keys]


@dataclass(frozen=True)
class Effect:
    """What one commit did to one table."""

    table: str
    rows: tuple[Row, ...] = ()
    clears: bool = False
    replaces_keys: bool = False

    def on(self, rows: Rows) -> Rows:
        if self.clears:
            return Counter(self.rows)
        keys = {key for key, _, _ in self.rows} if self.replaces_keys else set()
        kept = Counter({row: count for row, count in rows.items() if row[0] not in keys})
        return kept + Counter(self.rows)


@dataclass(frozen=True)
class Event:
    """A commit of the target as the model understands it."""

    commit: str
    run_id: str
    effects: tuple[Effect, ...] = ()
    tables: tuple[str, ...] = ()
    undoes: tuple[str, ...] = ()
    files: frozenset[tuple[str, str]] = frozenset()
    checks: CheckSet = "none"
    rewritten: frozenset[str] = frozenset()
    """Tables of which it took rows away; of these it is audited what they come to."""


@dataclass
class Model:
    """Follows the target, commit by commit.

    Args:
        read: Gives the rows of all tables at a commit as the lakehouse has them.
    """

    read: Callable[[str], State]
    ingests: dict[str, Ingest] = field(default_factory=dict)
    transactions: dict[str, Transact] = field(default_factory=dict)
    reverts: set[str] = field(default_factory=set)
    stream_begins: dict[str, int] = field(default_factory=dict)
    """How much was appended to streams before each one, by the id of its opening."""
    streamed: list[tuple[str, str, tuple[Row, ...]]] = field(default_factory=list)
    """What was appended to streams: the branch's commit after it, the table, and the rows."""
    by_outsiders: dict[str, Effect] = field(default_factory=dict)
    unaudited: set[str] = field(default_factory=set)
    """Runs that somebody audited again with no checks at all."""
    events: list[Event] = field(default_factory=list)
    state: State = field(default_factory=lambda: {table: Counter() for table in TABLES})
    past: list[State] = field(default_factory=list)

    def follow(self, commits: Sequence[Commit]) -> None:
        """Check commits that are new, oldest first."""
        for commit in commits:
            before = self.state
            event = self._follow(commit)
            found = self.read(commit.hash)
            for table in TABLES:
                missing, added = self.state[table] - found[table], found[table] - self.state[table]
                assert not missing, f"P2/P3/P9 {event.run_id}: {table} lacks {_told(missing)}"
                assert not added, f"P1/P2/P9 {event.run_id}: {table} has {_told(added)} too much"
            self.past.append(before)

    def _follow(self, commit: Commit) -> Event:
        event = self._understood(commit)
        before = self.state
        self.events.append(event)
        self.state = self.fold()
        self._check_audit(event, before)
        self._check_orphans(event, before)
        self._check_once(event)
        return event

    def active(self) -> Iterator[tuple[Event, str]]:
        """Yield event and table for all that stands, oldest first.

        Of a run that was reverted nothing counts, not even what it had undone: that stands again. Of a run whose files
        were replaced that does count; only its rows are gone.
        """
        reverted: set[tuple[str, str]] = set()
        replaced: set[tuple[str, str]] = set()
        standing = []
        for event in reversed(self.events):
            for table in event.tables:
                if (event.run_id, table) in reverted:
                    continue
                gone = reverted if event.run_id in self.reverts else replaced
                gone.update((run_id, table) for run_id in event.undoes)
                if (event.run_id, table) not in replaced:
                    standing.append((event, table))
        return reversed(standing)

    def published(self) -> set[str]:
        """Return the runs whose commit is on the target."""
        return {event.run_id for event in self.events}

    def standing(self) -> set[str]:
        """Return those of them that stand in some table."""
        return {event.run_id for event, _ in self.active()}

    def undone(self) -> set[str]:
        """Return the runs that something undid at some time, whether they stand again or not."""
        return {run_id for event in self.events for run_id in event.undoes}

    def live_files(self) -> Counter[tuple[str, str, str]]:
        """Return table, URI and version of what is published and stands."""
        return Counter((table, *file) for event, table in self.active() for file in event.files)

    def fold(self) -> State:
        """Return the rows of all tables, by all that stands."""
        state: dict[str, Rows] = {table: Counter() for table in TABLES}
        for event, table in self.active():
            for effect in event.effects:
                if effect.table == table:
                    state[table] = effect.on(state[table])
        return state

    def passes(self, run_id: str, state: State) -> bool:
        """Tell whether an ingest's files would pass its checks on top of ``state``."""
        order = self.ingests[run_id]
        rows = [row for file in order.files for row in content(file)]
        return not failing(order.checks, order.table, rows, state)

    def _understood(self, commit: Commit) -> Event:
        run_id = commit.properties.get(RUN_ID_PROPERTY)
        if run_id is None:
            effect = self.by_outsiders[commit.hash]
            return Event(commit.hash, f"outsider {commit.hash[:6]}", (effect,), (effect.table,))
        assert run_id not in self.published(), f"P5 run {run_id} was published twice"
        event = Event(commit.hash, run_id, undoes=event_in(commit).reverts)
        if run_id in self.ingests:
            return self._ingested(event, commit)
        part = event_in(commit).slice
        if part is not None:
            return self._streamed(event, part)
        if run_id in self.transactions:
            return self._transacted(event)
        assert run_id in self.reverts, f"P1 run {run_id} was never asked for"
        return replace(event, tables=tuple(event_in(commit).tables))

    def _ingested(self, event: Event, commit: Commit) -> Event:
        order = self.ingests[event.run_id]
        files = event_in(commit).files
        wanted = {(uri_of(number), str(version)): (number, version) for number, version in order.files}
        assert files, f"P5 run {event.run_id} does not tell its files"
        assert set(files) <= set(wanted), f"P2 run {event.run_id} published {files}, not {list(wanted)}"
        rows = tuple(row for file in files for row in content(wanted[file]))
        return replace(
            event,
            effects=(Effect(order.table, rows),),
            tables=(order.table,),
            files=frozenset(files),
            checks=self._checks(event.run_id, order),
        )

    def _transacted(self, event: Event) -> Event:
        order = self.transactions[event.run_id]
        effects, rewritten = perform(event.run_id, order, self.state)
        assert not order.fails, f"P1 transaction {event.run_id} failed and was published"
        tables = tuple(dict.fromkeys(effect.table for effect in effects))
        return replace(
            event, effects=tuple(effects), tables=tables, checks=self._checks(event.run_id, order), rewritten=rewritten
        )

    def _streamed(self, event: Event, part: Slice) -> Event:
        heads = [head for head, _, _ in self.streamed]
        first = heads.index(part.since) + 1 if part.since in heads else self.stream_begins[part.stream]
        rows = self.streamed[first : heads.index(part.until) + 1]
        effects = tuple(Effect(table, appended) for _, table, appended in rows)
        return replace(event, effects=effects, tables=tuple(dict.fromkeys(one.table for one in effects)))

    def _checks(self, run_id: str, order: Ingest | Transact) -> CheckSet:
        return "none" if run_id in self.unaudited else order.checks

    def _check_audit(self, event: Event, before: State) -> None:
        rest = {table: Counter(before[table]) for table in TABLES}
        for run_id in event.undoes:
            for gone in (e for e in self.events if e.run_id == run_id):
                for effect in gone.effects:
                    if effect.table in event.tables:
                        rest[effect.table] -= Counter(effect.rows)
        for table in event.tables:
            mine = [effect for effect in event.effects if effect.table == table]
            if table in event.rewritten:
                batch, rest = list(self.state[table].elements()), {**rest, table: Counter()}
            else:
                batch = [row for effect in mine for row in effect.rows]
            others = {name: self.state[name] if name != table else rest[name] for name in TABLES}
            why = failing(event.checks, table, batch, others)
            assert not why, f"P1/P4 {event.run_id} was published to {table}: {why}"

    def _check_orphans(self, event: Event, before: State) -> None:
        if event.run_id not in self.reverts:
            return
        keys, keys_before = _keys(self.state[PARENT]), _keys(before[PARENT])
        for one, table in self.active():
            if one.checks != "fk" or table == PARENT:
                continue
            rows = [row for effect in one.effects if effect.table == table for row in effect.rows]
            new = [row for row in rows if row[1] is not None and row[1] in keys_before and row[1] not in keys]
            assert not [row for row in new if row in self.state[table]], f"P4/P9 {event.run_id} made orphans: {new}"

    def _check_once(self, event: Event) -> None:
        twice = [file for file, count in self.live_files().items() if count > 1]
        assert not twice, f"P5 {event.run_id} published again: {twice}"
        for table in TABLES:
            again = [row for row, count in self.state[table].items() if count > 1]
            assert not again, f"P5 {event.run_id}: {table} has {again} more than once"


def perform(run_id: str, order: Transact, state: State) -> tuple[list[Effect], frozenset[str]]:
    """Return what a transaction does when nobody is in its way, and the tables it takes rows from."""
    now = dict(state)
    effects, rewritten = [], set()
    for index, step in enumerate(order.steps):
        rows = tuple(written(run_id, index, step, now[step.source].total()))
        effect = Effect(step.table, rows, clears=step.kind == "overwrite", replaces_keys=step.kind == "upsert")
        effects.append(effect)
        after = effect.on(now[step.table])
        if now[step.table] - after:
            rewritten.add(step.table)
        now[step.table] = after
    return effects, frozenset(rewritten)


def failing(checks: CheckSet, table: str, batch: Sequence[Row], others: State) -> str:
    """Return what of ``batch`` fails when added to ``others``; nothing when it passes."""
    keys = [key for key, _, _ in batch]
    if checks in ("not_null", "unique") and None in keys:
        return "a key is NULL"
    if checks == "unique":
        known = Counter(key for key, _, _ in others[table].elements()) + Counter(keys)
        again = sorted(key for key in keys if key is not None and known[key] > 1)
        return f"keys {again} are not unique" if again else ""
    if checks == "fk":
        parents = _keys(others[PARENT]) | (set(keys) if table == PARENT else set())
        orphans = [row for row in batch if row[1] is not None and row[1] not in parents]
        return f"orphans {orphans}" if orphans else ""
    return ""


def _keys(rows: Rows) -> set[int | None]:
    return {key for key, _, _ in rows}


def _told(rows: Rows) -> str:
    return ", ".join(f"{count} of {row}" for row, count in sorted(rows.items(), key=str))
