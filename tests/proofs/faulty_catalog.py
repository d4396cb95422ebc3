"""A catalog behind a bad line: answers get lost, requests arrive late or never, and others are faster."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol, TypeVar, get_args

from lakegate.errors import CatalogUnavailableError, ConflictError, LakegateError, OutcomeUnknownError
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TableDifference, TablePointer
from lakegate.ports import Catalog
from support.lakes import components_of

Fault = Literal["lost", "late", "never", "conflict", "away"]
"""``lost``: done, but no answer comes. ``late``: no answer, and it is done later. ``never``: no answer, never done.
``conflict``: refused without a reason. ``away``: no connection."""

_T = TypeVar("_T")


class Script(Protocol):
    """What happens around the calls."""

    def before(self, call: str) -> Fault | None:
        """Let happen what happens before a call; return what happens to the call itself."""
        ...

    def after(self, call: str) -> None:
        """Let happen what happens after a call."""
        ...


@dataclass
class Line:
    """Commits under way: sent, not answered, and not arrived yet."""

    catalog: Catalog
    under_way: list[tuple[int, CommitRequest]] = field(default_factory=list)

    def send(self, request: CommitRequest, *, calls: int) -> None:
        """Take a commit that arrives after so many more calls of anybody."""
        self.under_way.append((calls, request))

    def tick(self) -> None:
        """Let a call go by."""
        due = [request for calls, request in self.under_way if calls <= 0]
        self.under_way = [(calls - 1, request) for calls, request in self.under_way if calls > 0]
        for request in due:
            self._arrive(request)

    def arrive(self) -> None:
        """Let all of them arrive now."""
        due, self.under_way = self.under_way, []
        for _, request in due:
            self._arrive(request)

    def _arrive(self, request: CommitRequest) -> None:
        with contextlib.suppress(LakegateError):  # nobody waits for the answer any more
            self.catalog.commit(request)


class FaultyCatalog:
    """Implements :class:`lakegate.ports.Catalog` over another one, with the faults of a script."""

    def __init__(self, catalog: Catalog, script: Script, line: Line, target: str) -> None:
        self._catalog = catalog
        self._script = script
        self._line = line
        self._target = target

    def identity(self) -> str | None:
        return self._catalog.identity()

    def get_ref(self, name: str) -> Ref:
        return self._read("get_ref", lambda: self._catalog.get_ref(name))

    def list_refs(self) -> Iterator[Ref]:
        return iter(self._read("list_refs", lambda: list(self._catalog.list_refs())))

    def create_branch(self, name: str, source: Ref) -> Ref:
        return self._change("create_branch", lambda: self._catalog.create_branch(name, source))

    def create_tag(self, name: str, source: Ref) -> Ref:
        return self._change("create_tag", lambda: self._catalog.create_tag(name, source))

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        return self._change("assign_ref", lambda: self._catalog.assign_ref(ref, target))

    def delete_ref(self, ref: Ref) -> None:
        self._change("delete_ref", lambda: self._catalog.delete_ref(ref))

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        def read() -> list[Commit]:
            return list(self._catalog.history(ref, until=until, run_id=run_id, operations=operations))

        return iter(self._read("history", read))

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        return self._read("resolve", lambda: self._catalog.resolve(ref, at))

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        return iter(self._read("list_tables", lambda: list(self._catalog.list_tables(ref))))

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        return iter(self._read("list_namespaces", lambda: list(self._catalog.list_namespaces(ref))))

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        return self._read("get_table", lambda: self._catalog.get_table(table, ref))

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        return self._read("get_tables", lambda: self._catalog.get_tables(tables, ref))

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        return self._read("get_ref", lambda: self._catalog.get_ref_with_tables(name, tables))

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        return iter(self._read("diff", lambda: list(self._catalog.diff(left, right))))

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        return self._catalog.spark_options(ref)

    def close(self) -> None:
        """Do nothing: the catalog belongs to others too."""

    def commit(self, request: CommitRequest) -> Ref:
        call = "commit:target" if request.branch == self._target else "commit:branch"
        fault = self._script.before(call)
        if fault == "away":
            raise _unavailable(call)
        if fault == "conflict":
            raise ConflictError("The catalog refused it and gave no reason.")
        if fault == "late":
            self._line.send(request, calls=3)
        if fault == "lost":
            self._catalog.commit(request)
        if fault is not None:
            raise OutcomeUnknownError("The connection broke.")
        ref = self._catalog.commit(request)
        self._script.after(call)
        return ref

    def _read(self, call: str, read: Callable[[], _T]) -> _T:
        if self._script.before(call) is not None:
            raise _unavailable(call)
        found = read()
        self._script.after(call)
        return found

    def _change(self, call: str, change: Callable[[], _T]) -> _T:
        fault = self._script.before(call)
        if fault == "conflict":
            raise ConflictError("The catalog refused it and gave no reason.")
        if fault in ("away", "never"):
            raise _unavailable(call)
        done = change()
        if fault is not None:
            raise _unavailable(call)
        self._script.after(call)
        return done


@dataclass
class _Chance:
    """Lets some calls go wrong, each in any way."""

    line: Line
    percent: int
    chooser: random.Random

    def before(self, call: str) -> Fault | None:
        self.line.tick()
        return self.chooser.choice(get_args(Fault)) if self.chooser.randrange(100) < self.percent else None

    def after(self, call: str) -> None:
        """Let nothing happen after a call."""


def bad_line(lake: Lake, percent: int, seed: int) -> None:
    """Put an open lake behind a bad line, on which so many of a hundred calls to the catalog go wrong."""
    components = components_of(lake)
    line = Line(components.catalog)
    chance = _Chance(line, percent, random.Random(seed))
    components.context = replace(components.context, catalog=FaultyCatalog(components.catalog, chance, line, MAIN))


def _unavailable(call: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(f"The catalog is away ({call}).")
