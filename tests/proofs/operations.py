"""What happens in a history: operations, and what interrupts them. Plain values, so that a failing history shrinks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from hypothesis import strategies as st

from lakegate.model.request import OnBusy, OnChanged, OnFailure
from lakegate.wap.failpoints import FaultPoint
from proofs.faulty_catalog import Fault

TABLES = ("w.a", "w.b", "w.c")
File: TypeAlias = tuple[int, int]
"""A source file: its number, which is its path, and the version of its content."""
CheckSet = Literal["none", "not_null", "unique", "fk"]
CHECKS: dict[CheckSet, tuple[str, ...]] = {
    "none": (),
    "not_null": ("not_null(k)",),
    "unique": ("not_null(k)", "unique(k, scope='table')"),
    "fk": ("relationships(p, to='w.a', to_columns=k)",),
}
BAD_FILE = 4
"""The file with a NULL among its keys."""
SPOTS = (
    *get_args(FaultPoint),
    "confirmed",
    "commit:target",
    "commit:target",
    "commit:target",
    "commit:branch",
    "get_ref",
    "get_tables",
    "history",
    "create_branch",
    "delete_ref",
    "journal:begin",
    "journal:claim",
    "journal:save",
    "journal:end",
    "journal:record",
    "journal:take_over",
    "engine",
    "tx-step",
)


@dataclass(frozen=True)
class Crash:
    """The process is killed."""


@dataclass(frozen=True)
class Interrupt:
    """The user presses Ctrl-C."""


@dataclass(frozen=True)
class Break:
    """A call goes wrong."""

    fault: Fault
    for_good: bool = False


@dataclass(frozen=True)
class Do:
    """Others do something meanwhile."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Stall:
    """The process sleeps until its lease has run out, and others do something meanwhile."""

    operations: tuple[Operation, ...] = ()


Action: TypeAlias = Crash | Interrupt | Break | Do | Stall


@dataclass(frozen=True)
class At:
    """Something that happens when an operation gets to a spot for the nth time."""

    spot: str
    action: Action
    nth: int = 1
    after: bool = False


@dataclass(frozen=True)
class Ingest:
    table: str
    files: tuple[File, ...]
    checks: CheckSet = "not_null"
    on_changed: OnChanged = "refuse"
    on_failure: OnFailure = "keep"
    on_busy: OnBusy = "wait"
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class Step:
    """A write of a transaction; ``derive`` appends how many rows ``source`` has."""

    kind: Literal["append", "overwrite", "upsert", "derive"]
    table: str
    keys: tuple[int, ...] = (0,)
    source: str = TABLES[0]


@dataclass(frozen=True)
class Transact:
    steps: tuple[Step, ...]
    checks: CheckSet = "none"
    on_failure: OnFailure = "keep"
    fails: bool = False
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class Gate:
    """Somebody appends to a branch through the gate, which is sealed then, by the same process or another one."""

    steps: tuple[Step, ...]
    checks: CheckSet = "none"
    fails: bool = False
    apart: bool = False
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class Stream:
    """A writer that never stops appends to its branch; then what it has appended is published."""

    table: str
    rows: int = 1
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class PublishKept:
    """Publish one of the branches that stand; with ``lax``, audited anew with no checks."""

    which: int
    lax: bool = False
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class Discard:
    which: int


@dataclass(frozen=True)
class Revert:
    which: int
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class Recover:
    at: tuple[At, ...] = ()


@dataclass(frozen=True)
class LoseJournal:
    """The journal is lost, and nobody rebuilds it."""


@dataclass(frozen=True)
class Collect:
    """Garbage collection, long after everything that was done until now."""


@dataclass(frozen=True)
class Outsider:
    """Somebody changes a table on the target directly."""

    kind: Literal["append", "drop"]
    table: str


Operation: TypeAlias = (
    Ingest | Transact | Gate | Stream | PublishKept | Discard | Revert | Recover | LoseJournal | Collect | Outsider
)
History: TypeAlias = tuple[Operation, ...]

_FAULTS: tuple[Fault, ...] = ("lost", "late", "never", "conflict", "away")
_MEANWHILE = (
    *("after-branch", "after-stage", "after-audit", "before-publish"),
    *("journal:claim", "tx-step"),
)
_POOLS = (TABLES[:1], TABLES[:1], TABLES[:2], TABLES)


def histories(*, longest: int, on_main: bool = True) -> st.SearchStrategy[History]:
    """Return histories in which operations run within operations, two levels deep.

    Args:
        longest: Operations in one, at most, those within others not counted.
        on_main: Whether to include what knows no other target than ``main``.
    """
    return st.sampled_from(_POOLS).flatmap(lambda pool: _histories(pool, longest, on_main=on_main))


def _histories(pool: tuple[str, ...], longest: int, *, on_main: bool) -> st.SearchStrategy[History]:
    inner = _operations(pool, st.just(()) | st.lists(_broken(), max_size=1).map(tuple), on_main=on_main)
    concurrent = st.lists(inner, min_size=1, max_size=2).map(tuple)
    meanwhile = st.builds(At, spot=st.sampled_from((*_MEANWHILE, "commit:target")), action=st.builds(Do, concurrent))
    # Nobody sleeps in the middle of a commit: a request arrives before the lease of who sent it runs out, or never.
    asleep = st.builds(
        At,
        spot=st.sampled_from(_MEANWHILE),
        action=st.builds(Stall, st.just(()) | concurrent),
        nth=st.sampled_from((1, 1, 1, 2)),
        after=st.booleans(),
    )
    interruptions = st.just(()) | st.lists(st.one_of(meanwhile, meanwhile, asleep, _broken()), max_size=2).map(tuple)
    outer = _operations(pool, interruptions, on_main=on_main)
    # Garbage is collected between operations only: what is under way is younger than the grace period.
    between = [st.just(Collect())] if on_main else []
    alike = st.builds(_met_by_its_like, outer, st.sampled_from((*_MEANWHILE, "commit:target")), st.booleans())
    return st.lists(st.one_of(*[outer] * 10, *[alike] * 4, *between), min_size=1, max_size=longest).map(tuple)


def _met_by_its_like(operation: Operation, spot: str, lost: bool) -> Operation:
    """Have an operation meet another one that wants the very same, or one for each table of its own."""
    loses: tuple[Operation, ...] = (LoseJournal(),) if lost else ()
    match operation:
        case Ingest():
            return replace(operation, at=(At(spot, Do((*loses, replace(operation, at=())))),))
        case Stream():
            return replace(operation, at=(At(spot, Do((*loses, replace(operation, at=())))),))
        case Transact():
            touched = dict.fromkeys(table for step in operation.steps for table in (step.table, step.source))
            concurrent = tuple(Outsider("append", table) for table in touched)
            return replace(operation, at=(At(spot, Do(concurrent if lost else (replace(operation, at=()),))),))
    return operation


def _broken() -> st.SearchStrategy[At]:
    actions: list[st.SearchStrategy[Any]] = [
        st.just(Crash()),
        st.builds(Break, st.sampled_from(_FAULTS)),
        st.just(Break("away", for_good=True)),
        st.just(Interrupt()),
    ]
    return st.builds(
        At,
        spot=st.sampled_from(SPOTS),
        action=st.one_of(*actions),
        nth=st.sampled_from((1, 1, 1, 1, 2, 3)),
        after=st.booleans(),
    )


def _operations(
    pool: tuple[str, ...], interruptions: st.SearchStrategy[tuple[At, ...]], *, on_main: bool
) -> st.SearchStrategy[Operation]:
    table, which = st.sampled_from(pool), st.integers(0, 3)
    checks: st.SearchStrategy[CheckSet] = st.sampled_from(("none", "not_null", "unique", "fk"))
    files = st.tuples(st.integers(0, BAD_FILE), st.sampled_from((0, 0, 1)))
    steps = st.builds(
        Step,
        kind=st.sampled_from(("append", "overwrite", "upsert", "derive")),
        table=table,
        keys=st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True).map(tuple),
        source=table,
    )
    kept: st.SearchStrategy[OnFailure] = st.sampled_from(("keep", "drop"))
    ingests = st.builds(
        Ingest,
        table=table,
        files=st.lists(files, min_size=1, max_size=2, unique_by=lambda file: file[0]).map(tuple),
        checks=checks,
        on_changed=st.sampled_from(("refuse", "append", "replace")),
        on_failure=kept,
        on_busy=st.sampled_from(("wait", "skip")),
        at=interruptions,
    )
    transactions = st.builds(
        Transact,
        steps=st.lists(steps, max_size=2).map(tuple),
        checks=checks,
        on_failure=kept,
        fails=st.sampled_from((False, False, False, False, True)),
        at=interruptions,
    )
    appends = st.builds(Step, kind=st.just("append"), table=table, keys=st.tuples(st.integers(0, 3)))
    gates = st.builds(
        Gate,
        steps=st.lists(appends, max_size=2).map(tuple),
        checks=checks,
        fails=st.sampled_from((False, False, False, True)),
        apart=st.booleans(),
        at=interruptions,
    )
    streams = st.builds(Stream, table=table, rows=st.integers(0, 2), at=interruptions)
    rare: list[st.SearchStrategy[Any]] = [
        st.builds(Recover, at=interruptions),
        st.builds(Discard, which=which),
        st.builds(Outsider, kind=st.sampled_from(("append", "append", "drop")), table=table),
        st.just(LoseJournal()),
    ]
    if on_main:
        rare += [st.builds(PublishKept, which=which, lax=st.booleans(), at=interruptions)]
    reverts = st.builds(Revert, which=which, at=interruptions)
    # Ingests are what most histories are about.
    return st.one_of(ingests, ingests, ingests, transactions, transactions, gates, streams, reverts, st.one_of(*rare))
