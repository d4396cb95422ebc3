"""What happens in a history: operations, and what interrupts them. Plain values, so that a failing history shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from hypothesis import strategies as st

from lakegate.flow.faults import FaultPoint
from lakegate.model.run import OnBusy, OnChanged, OnFailure
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
    cascade: bool = False
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


Operation: TypeAlias = Ingest | Transact | PublishKept | Discard | Revert | Recover | LoseJournal | Collect | Outsider
History: TypeAlias = tuple[Operation, ...]

_FAULTS: tuple[Fault, ...] = ("lost", "late", "never", "conflict", "away")


def _actions(others: st.SearchStrategy[Operation] | None) -> st.SearchStrategy[Any]:
    alone = [
        st.just(Crash()),
        st.builds(Break, st.sampled_from(_FAULTS)),
        st.just(Break("away", for_good=True)),
        st.just(Interrupt()),
    ]
    if others is None:
        return st.one_of(*alone)
    some = st.lists(others, min_size=1, max_size=2).map(tuple)
    return st.one_of(st.builds(Do, some), st.builds(Stall, st.just(()) | some), *alone)


def _interruptions(others: st.SearchStrategy[Operation] | None, most: int) -> st.SearchStrategy[tuple[At, ...]]:
    at = st.builds(
        At,
        spot=st.sampled_from(SPOTS),
        action=_actions(others),
        nth=st.sampled_from((1, 1, 1, 2, 3)),
        after=st.booleans(),
    )
    return st.just(()) | st.lists(at, max_size=most).map(tuple)


_files = st.lists(
    st.tuples(st.integers(0, BAD_FILE), st.sampled_from((0, 0, 1))), min_size=1, max_size=3, unique_by=lambda f: f[0]
).map(tuple)
_table = st.sampled_from(TABLES)
_kept: st.SearchStrategy[OnFailure] = st.sampled_from(("keep", "drop"))
_steps = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(("append", "overwrite", "upsert", "derive")),
        table=_table,
        keys=st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True).map(tuple),
        source=_table,
    ),
    max_size=3,
).map(tuple)
_checks: st.SearchStrategy[CheckSet] = st.sampled_from(("none", "not_null", "unique", "fk"))


def operations(interruptions: st.SearchStrategy[tuple[At, ...]], *, on_main: bool) -> st.SearchStrategy[Operation]:
    """Return operations with such interruptions; ``on_main``: those included that know no other target."""
    which = st.integers(0, 5)
    kinds: list[st.SearchStrategy[Any]] = [
        st.builds(
            Ingest,
            table=_table,
            files=_files,
            checks=_checks,
            on_changed=st.sampled_from(("refuse", "append", "replace")),
            on_failure=_kept,
            on_busy=st.sampled_from(("wait", "skip")),
            at=interruptions,
        ),
        st.builds(
            Transact,
            steps=_steps,
            checks=_checks,
            on_failure=_kept,
            fails=st.sampled_from((False, False, False, True)),
            at=interruptions,
        ),
        st.builds(Revert, which=which, cascade=st.booleans(), at=interruptions),
        st.builds(Recover, at=interruptions),
        st.builds(Discard, which=which),
        st.builds(Outsider, kind=st.sampled_from(("append", "append", "drop")), table=_table),
        st.just(LoseJournal()),
    ]
    if on_main:
        kinds.append(st.builds(PublishKept, which=which, lax=st.booleans(), at=interruptions))
    # Ingests are what most histories are about.
    return st.one_of(kinds[0], kinds[0], *kinds)


def histories(*, longest: int, on_main: bool = True) -> st.SearchStrategy[History]:
    """Return histories in which operations run within operations, two levels deep."""
    inner = operations(_interruptions(None, 1), on_main=on_main)
    outer = operations(_interruptions(inner, 2), on_main=on_main)
    top = st.one_of(outer, outer, outer, outer, outer, outer, st.just(Collect())) if on_main else outer
    return st.lists(top, min_size=1, max_size=longest).map(tuple)
