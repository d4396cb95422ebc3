"""Whoever reads the commits, at once or bit by bit, comes to the same ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from lakegate.errors import ConflictError, InputError, NotFoundError, NotRevertableError
from lakegate.journal.history import ON_TARGET
from lakegate.journal.journal import Journal
from lakegate.journal.schema import CLAIMS, RUNS, STANDING
from lakegate.ledger.event import PastCommit
from lakegate.ledger.fold import fold
from lakegate.ledger.sync import read_history, sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import reset_branch, restore_table
from lakegate.wap.table_changes import drop_table, rename_table, runs_in
from lakegate.wap.transaction import Transaction
from support.examples import examples
from support.ledger_support import past, said
from support.memory_journal import MemoryDatabase
from support.revert_support import House

TABLES = ("nyc.a", "nyc.b", "nyc.c")
BRING_DATA = ("add", "both", "new")
_REFUSED = (ConflictError, InputError, NotFoundError, NotRevertableError)


def known(database: MemoryDatabase) -> dict[str, Any]:
    """Return what a journal knows of the ledger."""
    with database.reading() as tx:
        files = tx.execute(select(CLAIMS).where(CLAIMS.c.state == "published").order_by(CLAIMS.c.claim_id)).all()
        runs = tx.execute(select(RUNS.c.run_id, RUNS.c.status, RUNS.c.reverted_by)).all()
        entries = tx.execute(select(STANDING).order_by(STANDING.c.entry_id)).all()
        return {
            "standing": [(one.table_name, one.run_id) for one in entries],
            "files": {(row.table_name, row.path, row.version): row.run_id for row in files},
            "newest": {(row.table_name, row.path): row.version for row in files},
            "runs": {row.run_id: (row.status, row.reverted_by) for row in runs if row.status in ON_TARGET},
        }


def folded(commits: Sequence[PastCommit]) -> dict[str, Any]:
    """Return the same of the fold over the whole history."""
    ledger = fold(commits)
    removed_by = {run: by for run, by in ledger.removed_by.items() if run not in ledger.runs}
    runs = {
        run: ("reverted" if run in removed_by else "published", removed_by.get(run))
        for run in (*ledger.publications, *removed_by)
    }
    return {
        "standing": list(ledger.standing),
        "files": ledger.files,
        "newest": {(table, path): version for table, path, version in ledger.files},
        "runs": runs,
    }


_NAMES = st.sampled_from(TABLES)
_SAID = st.builds(
    lambda tables, files, removes, moved: (tables, files, removes, moved),
    st.lists(_NAMES, min_size=1, max_size=2, unique=True),
    st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("12")), max_size=2, unique=True),
    st.lists(st.integers(0, 7), max_size=2, unique=True),
    st.one_of(st.none(), st.none(), st.permutations(TABLES).map(lambda names: (names[0], names[1]))),
)


@settings(max_examples=examples(60, 400))
@given(st.lists(_SAID, max_size=9), st.sets(st.integers(1, 9)), st.booleans())
def test_commits_read_bit_by_bit_leave_the_same_as_all_at_once(
    histories: list[Any], stops: set[int], again: bool
) -> None:
    commits = []
    for number, (tables, files, removes, moved) in enumerate(histories):
        earlier = [f"r{one}" for one in removes if one < number]
        event = said(f"r{number}", *tables, files=files, removes=earlier, moved=() if moved is None else (moved,))
        if number % 4 == 3:  # a restore: others come back, too
            back = {f"r{number - 3}": (("x", "1"),), **event.tables[tables[0]].add}
            effect = event.tables[tables[0]].model_copy(update={"add": back})
            event = event.model_copy(update={"tables": {**event.tables, tables[0]: effect}})
        commits.append(past(f"c{number}", event))
    database = MemoryDatabase()
    journal, done = Journal(database), 0
    journal.record("main", [], "c", rebuild=True)
    for stop in (*sorted(stop for stop in stops if stop < len(commits)), len(commits)):
        if stop > done:
            journal.record("main", commits[0 if again else done : stop], f"c{stop - 1}")
            done = stop
    assert known(database) == folded(commits)
    journal.record("main", commits, f"c{len(commits) - 1}", rebuild=True)
    assert known(database) == folded(commits)


class Lake:
    """A lakehouse to which random things happen. Nothing that is refused matters here."""

    def __init__(self) -> None:
        self.house = House()
        self.numbers = count()
        self.published: list[str] = []
        self.done: Counter[str] = Counter()
        self.heads: list[Ref] = [self.house.head()]
        self.reader = MemoryDatabase()
        self.follower = replace(self.house.context, journal=Journal(self.reader))

    def do(self, what: str, first: int, second: int) -> None:
        number = next(self.numbers)
        run, rows = f"{what}-{number}", [{"id": number, "passengers": second}]
        table, other = (TableIdentifier.parse(TABLES[number % len(TABLES)]) for number in (first, second))
        house, context = self.house, self.house.context
        at = self.heads[(first * 7 + second) % len(self.heads)]
        file: dict[str, Any] = {"file": f"f{second % 3}", "version": str(first % 2)}
        on_changed = ("refuse", "append", "replace")[second % 3]
        does: dict[str, Callable[[], object]] = {
            "add": lambda: house.add(run, rows, table=table, on_changed=on_changed, **file),
            "both": lambda: self.write_both(run, rows, table, other),
            "truncate": lambda: house.work(
                run, lambda tx: tx.overwrite(str(table), []), undoes=partial(runs_in, context, table)
            ),
            "drop": lambda: drop_table(context, table, new_run_id=run),
            "rename": lambda: rename_table(context, table, other, new_run_id=run),
            "restore": lambda: restore_table(context, table, at, new_run_id=run),
            "revert": lambda: house.undo((self.published or ["nobody"])[first % max(len(self.published), 1)], new=run),
            "reset": lambda: reset_branch(context, "main", at, force=True),
            "foreign": lambda: self.drop_by_hand(run, table),
        }
        try:
            does[what]()
        except _REFUSED:
            return
        self.done[what] += 1
        self.published.append(run)
        self.heads.append(house.head())

    def write_both(self, run: str, rows: Sequence[dict[str, Any]], *tables: TableIdentifier) -> None:
        names = {str(table) for table in tables}
        for name in names:
            self.create(name)

        def append(tx: Transaction) -> None:
            for name in sorted(names):
                tx.append(name, rows)

        self.house.work(run, append)

    def drop_by_hand(self, namespace: str, table: TableIdentifier) -> None:
        """What another writer does: no commit of its says anything."""
        head = self.house.head()
        deletes = () if self.house.catalog.get_table(table, head) is None else (table,)
        request = CommitRequest(branch="main", base=head.hash, message="m", deletes=deletes, namespaces=((namespace,),))
        self.house.catalog.commit(request)

    def runs_with_rows(self) -> set[tuple[str, str]]:
        """Return which runs have rows in which tables: each wrote rows of its own number."""
        head, found = self.house.head(), set[tuple[str, str]]()
        for table in TABLES:
            if self.house.catalog.get_table(TableIdentifier.parse(table), head) is not None:
                found |= {(table, f"{row['id']}") for row in self.house.rows(table)}
        return found

    def create(self, name: str) -> None:
        """Make sure that a table exists."""
        table = TableIdentifier.parse(name)
        if self.house.catalog.get_table(table, self.house.head()) is None:
            number = next(self.numbers)
            self.house.add(f"new-{number}", [{"id": number, "passengers": 0}], table=table)


_DOES = ("add", "add", "both", "both", "truncate", "drop", "rename", "restore", "revert", "revert", "reset", "foreign")


@settings(max_examples=examples(25, 200))
@given(st.lists(st.tuples(st.sampled_from(_DOES), st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=14))
def test_whatever_happens_to_a_lakehouse_a_rebuild_gives_the_same(steps: list[tuple[str, int, int, bool]]) -> None:
    lake = Lake()
    for what, first, second, syncs in steps:
        lake.do(what, first, second)
        if syncs:
            sync(lake.follower, "main")
    head = sync(lake.house.context, "main")
    sync(lake.follower, "main")
    whole = folded(read_history(lake.house.context, head.hash).commits)
    assert known(lake.house.database) == whole
    assert known(lake.reader) == whole
    rebuild(lake.follower, "main")
    assert known(lake.reader) == whole
    if not lake.done["foreign"]:  # who drops a table by hand removes rows that count as published
        data = {(table, run.rpartition("-")[2]) for table, run in whole["standing"] if run.startswith(BRING_DATA)}
        assert data == lake.runs_with_rows()
    lake.house.lose_journal()
    rebuild(lake.house.context, "main")
    assert known(lake.house.database) == whole
