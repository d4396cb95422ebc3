"""Commits of writers to the branch of their opening: of one table or several, each in one commit of the catalog.

A commit is made by comparison: it holds if the tables are as the gate read them. If somebody was faster, it's tried
again on what is there now, as long as the writer's requirements are met; plain appends are put on top of the others'.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from random import uniform
from typing import Any, Final, NamedTuple, TypeAlias

from lakegate.credentials.openings import staged_uuid
from lakegate.errors import (
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    NotReplayableError,
    OutcomeUnknownError,
)
from lakegate.gate.contents import catalog_overrides
from lakegate.gate.locations import require_own_files, without_shown
from lakegate.gate.openings import Doorkeeper, ended
from lakegate.gate.refusals import RefusedError, bad_request, commit_failed, no_table
from lakegate.gate.updates import apply_updates, check_requirements, well_formed
from lakegate.iceberg import metadata
from lakegate.iceberg.editor import with_appends
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.iceberg.snapshot_producer import LoadedTable
from lakegate.iceberg.validation import MAIN_BRANCH, require_loadable
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.opening import Opening
from lakegate.model.refs import NO_SNAPSHOT, CommitRequest, Ref, TablePointer
from lakegate.ports import Catalog

REQUEST_PROPERTY: Final = "lakegate.gate.request"
"""Commit property: which request the commit is the answer to."""

_PATIENCE_S = 20.0
"""How long a commit is tried. Clients wait longer for an answer; several gates may be at one table."""
_ATTEMPTS = 8
_LONGEST_PAUSE_S = 0.05
_REMEMBERED_COMMITS = 1_000
"""How many commits of a branch are searched for the one that a repeated request has made already."""

Tables: TypeAlias = Mapping[TableIdentifier, TablePointer | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that writes.

    Attributes:
        opening: Whose request it is, as its token says.
        mark: Identifies the request and everything it asks for. If it's sent again, it's answered, and not done again.
        is_marked: Whether the mark is the client's own, so that it may send the request again.
        client: The program that sent it.
    """

    opening: Opening
    mark: str
    is_marked: bool
    client: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a request asks of one table."""

    table: TableIdentifier
    requirements: Sequence[Document]
    updates: Sequence[Document]


class State(NamedTuple):
    """A table as a commit left it."""

    pointer: TablePointer
    document: Document


class Plan(NamedTuple):
    """What to commit on top of a head: the operations, and why."""

    message: str
    puts: Sequence[State] = ()
    deletes: Sequence[TableIdentifier] = ()
    unchanged: Sequence[TableIdentifier] = ()
    namespaces: Sequence[tuple[str, ...]] = ()
    drops: Sequence[tuple[str, ...]] = ()


class Committer:
    """Commits to branches. Thread-safe.

    Args:
        catalog: Returns the catalog at its current address.
        doorkeeper: Asked before each commit whether the branch is open.
    """

    def __init__(self, catalog: Callable[[], Catalog], files: TableFiles, doorkeeper: Doorkeeper) -> None:
        self._catalog = catalog
        self._files = files
        self._reader = IcebergTableReader(files)
        self._doorkeeper = doorkeeper
        self._turns: dict[str, threading.Lock] = {}

    def state(self, pointer: TablePointer) -> State:
        """Return a table with its metadata, as the catalog names it. Raises what reading it does."""
        document = self._files.metadata(pointer).document
        return State(pointer, {**document, **catalog_overrides(document, pointer)})

    def commit_tables(self, asked: Asked, changes: Sequence[TableCommit]) -> Sequence[State]:
        """Change tables in one commit, and return them as it left them.

        Raises:
            RefusedError: A requirement isn't met, or a change isn't allowed.
            LakegateError: What the catalog and the files raise.
        """
        tables = [one.table for one in changes]
        if len(set(tables)) < len(tables):
            raise bad_request("The request names a table twice.")

        def plan(_: Ref, now: Tables) -> Plan:
            after = [self._changed(asked.opening, one, now[one.table]) for one in changes]
            puts = [state for state in after if state.pointer != now[state.pointer.table]]
            same = [state.pointer.table for state in after if state.pointer == now[state.pointer.table]]
            return Plan(_message(changes), puts, unchanged=same)

        made, now = self.commit(asked, tables, plan)
        states = {state.pointer.table: state for state in (() if made is None else made.puts)}
        return [states.get(table) or self.found(table, now[table]) for table in tables]

    def is_published(self, opening: Opening, pointer: TablePointer) -> bool:
        """Return whether ``main`` had the table when the opening began."""
        there = self._catalog().get_tables([pointer.table], Ref.detached(opening.base))[pointer.table]
        return there is not None and there.content_id == pointer.content_id

    def found(self, table: TableIdentifier, pointer: TablePointer | None) -> State:
        """Return a table's state. Raises :class:`RefusedError` if it isn't there."""
        if pointer is None:
            raise no_table(str(table))
        return self.state(pointer)

    def commit(
        self, asked: Asked, tables: Sequence[TableIdentifier], plan: Callable[[Ref, Tables], Plan]
    ) -> tuple[Plan | None, Tables]:
        """Commit what ``plan`` makes of the branch, once, however often the request is sent.

        Returns:
            The plan that was committed, and the tables before it. If the same request has been committed before,
            ``None``, and the tables as they are.
        """
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            ref, now = self._at_head(asked.opening, tables)
            try:
                change = plan(ref, now)
            except (RefusedError, LakegateError):
                if asked.is_marked and self._was_made(asked):
                    return None, now
                raise
            if not (change.puts or change.deletes or change.namespaces or change.drops):
                return change, now
            try:
                self._commit(asked, now, change)
            except ConflictError:
                time.sleep(uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - no secret
            except NotFoundError as error:
                raise ended(asked.opening.branch, "the branch is gone") from error
            except OutcomeUnknownError as error:
                if self._was_made(asked):
                    return change, now
                raise unknown_outcome() from error
            else:
                return change, now
        raise commit_failed("Others kept changing the same tables. Try again.")

    def _commit(self, asked: Asked, now: Tables, change: Plan) -> None:
        """Commit on top of the branch's head, if the tables are still as in ``now`` there."""
        with self._turns.setdefault(asked.opening.branch, threading.Lock()):  # or they'd only refuse each other
            for _ in range(_ATTEMPTS if now else 1):
                ref, at_head = self._at_head(asked.opening, list(now))
                # After the head was read, and before the commit: see ports.Openings.
                self._doorkeeper.require_open(asked.opening)
                if at_head != now:
                    break
                self._doorkeeper.note_client(asked.opening, asked.client)
                with suppress(ConflictError):  # another gate's commit came between, perhaps to other tables
                    self._catalog().commit(_request(asked, ref, change))
                    return
        raise ConflictError("Another commit was faster.")

    def _at_head(self, opening: Opening, tables: Sequence[TableIdentifier]) -> tuple[Ref, Tables]:
        try:
            if not tables:
                return self._catalog().get_ref(opening.branch), {}
            return self._catalog().get_ref_with_tables(opening.branch, tables)
        except NotFoundError as error:
            raise ended(opening.branch, "the branch is gone") from error
        except ConfigurationError:
            raise
        except InputError as error:  # one of them is the name of something else
            raise RefusedError(HTTPStatus.CONFLICT, "AlreadyExistsException", error.message) from error

    def _was_made(self, asked: Asked) -> bool:
        commits = self._catalog().history(asked.opening.branch, until=asked.opening.base)
        return any(one.properties.get(REQUEST_PROPERTY) == asked.mark for one in islice(commits, _REMEMBERED_COMMITS))

    def _changed(self, opening: Opening, change: TableCommit, pointer: TablePointer | None) -> State:
        """Return a table with what a request asks of it; the same if that is nothing. Its metadata file is written."""
        before = None if pointer is None else self.state(pointer).document
        with well_formed():
            creates = any(one["type"] == "assert-create" for one in change.requirements)
        if pointer is None and not creates:
            raise no_table(str(change.table))
        if before is not None and pointer is not None and not change.updates:
            check_requirements(before, change.requirements)
            return State(pointer, before)
        try:
            check_requirements(before, change.requirements)
            after = apply_updates(before, None if pointer is None else pointer.metadata_location, change.updates)
        except RefusedError as refusal:
            if before is None or pointer is None or refusal.status != HTTPStatus.CONFLICT:
                raise
            after = self._on_top(change, State(pointer, before), refusal)
        return self.written(opening, change.table, State(pointer, before) if pointer and before else None, after)

    def _on_top(self, change: TableCommit, now: State, lost: RefusedError) -> Document:
        """Return the table with a plain append that somebody else was faster than; raise ``lost`` if it's none."""
        appended = _plain_append(change.updates)
        if not appended:
            raise lost
        with well_formed():
            rest = [one for one in change.requirements if one["type"] != "assert-ref-snapshot-id"]
            before = _rolled_back(now.document, appended[0])
        check_requirements(now.document, rest)
        staged = apply_updates(before, None, change.updates)
        self._require_own_files(now, staged)  # before anything of it is read
        ids = [one["snapshot-id"] for one in appended]
        pointer = now.pointer.model_copy(update={"snapshot_id": ids[-1]})
        try:
            return with_appends(LoadedTable(pointer, staged, self._files), ids, LoadedTable(*now, files=self._files))
        except (NotReplayableError, InputError):
            raise lost from None

    def written(self, opening: Opening, table: TableIdentifier, before: State | None, after: Document) -> State:
        """Check new metadata as a whole, and write it to a file that nothing names yet.

        Raises:
            RefusedError: It's a state that no writer may bring about.
        """
        after = without_shown(after, None if before is None else before.document, opening)
        if before is None and after["table-uuid"] != staged_uuid(
            opening, str(table), after["location"], self._doorkeeper.key
        ):
            raise bad_request(
                f"Table {table} wasn't begun here with this UUID at this location. Create it through the catalog, "
                "which gives it both."
            )
        self._require_own_files(before, after)
        name = metadata.next_name(after, "" if before is None else before.pointer.metadata_location)
        location = f"{metadata.folder(after)}/{name}"
        pointer = _pointer(table, None if before is None else before.pointer.content_id, location, after)
        try:
            require_loadable(after, pointer, opening.branch, as_named=True)
        except InputError as error:
            raise bad_request(error.message) from error
        self._files.create(location, metadata.serialise(location, after), pointer)
        return State(pointer, after)

    def _require_own_files(self, before: State | None, after: Document) -> None:
        pointer, document = before or (None, None)
        require_own_files(
            self._files, document, after, lambda: () if pointer is None else list(self._reader.reach(pointer))
        )


def unknown_outcome() -> RefusedError:
    """Return the error for a commit that may or may not have been made."""
    message = "The catalog didn't say whether the commit was made. Read the table to find out."
    return RefusedError(HTTPStatus.GATEWAY_TIMEOUT, "CommitStateUnknownException", message)


def _request(asked: Asked, ref: Ref, change: Plan) -> CommitRequest:
    return CommitRequest(
        branch=asked.opening.branch,
        base=ref.hash,
        at_head=True,
        message=change.message,
        puts=tuple(state.pointer for state in change.puts),
        deletes=tuple(change.deletes),
        unchanged=tuple(change.unchanged),
        namespaces=tuple(change.namespaces),
        drops=tuple(change.drops),
        properties={
            REQUEST_PROPERTY: asked.mark,
            "lakegate.gate.opening": asked.opening.opening_id,
            "lakegate.gate.client": asked.client,
        },
    )


def _pointer(table: TableIdentifier, content_id: str | None, location: str, document: Document) -> TablePointer:
    current = document.get("current-snapshot-id")
    return TablePointer(
        table=table,
        content_id=content_id,
        metadata_location=location,
        snapshot_id=NO_SNAPSHOT if current is None else current,
        schema_id=document["current-schema-id"],
        spec_id=document["default-spec-id"],
        sort_order_id=document["default-sort-order-id"],
    )


def _plain_append(updates: Sequence[Document]) -> Sequence[Document]:
    """Return the snapshots of updates that append to the main branch and do nothing else; none for other updates."""
    with well_formed():
        added: list[Any] = [one["snapshot"] for one in updates if one["action"] == "add-snapshot"]
        others = [one for one in updates if one["action"] != "add-snapshot"]
        is_append = all(one["summary"]["operation"] == "append" for one in added)
        moves_main = all((one["action"], one.get("ref-name")) == ("set-snapshot-ref", MAIN_BRANCH) for one in others)
        is_last = bool(added and others) and others[-1].get("snapshot-id") == added[-1]["snapshot-id"]
        return added if is_append and moves_main and is_last else ()


def _rolled_back(document: Document, first: Document) -> Document:
    """Return a table as it was when a writer appended snapshot ``first`` to it, as far as the append is concerned."""
    parent = first.get("parent-snapshot-id")
    refs = {name: one for name, one in (document.get("refs") or {}).items() if name != MAIN_BRANCH}
    if parent is not None:
        refs[MAIN_BRANCH] = {"type": "branch", "snapshot-id": parent}
    counters = {"next-row-id": first.get("first-row-id")} if "next-row-id" in document else {}
    return {
        **document,
        **counters,
        "refs": refs,
        "current-snapshot-id": NO_SNAPSHOT if parent is None else parent,
        "last-sequence-number": first.get("sequence-number", 1) - 1,
        "last-updated-ms": min(document["last-updated-ms"], first["timestamp-ms"]),
    }


def _message(changes: Sequence[TableCommit]) -> str:
    with well_formed():
        updates = [update for change in changes for update in change.updates]
        added = [update["snapshot"]["summary"]["operation"] for update in updates if update["action"] == "add-snapshot"]
    return f"{str(added[0])[:40] if added else 'change'} {', '.join(str(change.table) for change in changes)}"
