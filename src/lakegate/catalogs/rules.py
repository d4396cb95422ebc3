"""The rules of a commit, which are Nessie's: what must be unchanged since its base, and what it makes of each key.

Catalogs that check commits themselves share them: :class:`lakegate.testing.MemoryCatalog`, and the overlay of
:mod:`lakegate.catalogs.target`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias
from uuid import uuid4

from lakegate.catalogs import HEAD_MOVED, KeyConflict, commit_conflict
from lakegate.errors import InputError
from lakegate.model.refs import CommitRequest, TableDifference, TablePointer

Key: TypeAlias = tuple[str, ...]
Content: TypeAlias = TablePointer | Key
"""The content of a key: a table's pointer, or for a namespace the key itself."""
Contents: TypeAlias = Mapping[Key, Content]

ROOT_HASH: Final = hashlib.sha256(b"empty").hexdigest()
"""The commit before all others. It's empty and appears in no history."""


def new_hash(parent: str) -> str:
    """Return a hash for a new commit after ``parent``. No other commit has it."""
    return hashlib.sha256(f"{parent} {uuid4()}".encode()).hexdigest()


def check_keys(request: CommitRequest) -> None:
    """Check that a request has an operation, and no two on one key.

    Raises:
        InputError: If it hasn't.
    """
    keys = [*request.namespaces, *(pointer.table.parts for pointer in request.puts)]
    keys += [*(table.parts for table in request.deletes), *request.drops]
    if not keys and not request.unchanged and not request.at_head:
        raise InputError("A commit needs at least one operation.", ref=request.branch)
    twice = next((key for key, times in Counter(keys).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"The commit has two operations on '{'.'.join(twice)}'.", ref=request.branch)


def changed_contents(request: CommitRequest, base: Contents, head: Contents, *, behind: bool) -> dict[Key, Content]:
    """Return the contents after ``request``, in the order of its operations where they are new.

    Args:
        base: What was there at ``request.base``: at least the keys that the request names.
        head: What is there at the branch's head. A namespace is only found not to be empty by what is in here.
        behind: Whether the head has moved on from the base.

    Raises:
        ConflictError: If the request conflicts with what others committed, or with what is there.
    """
    now = dict(head)
    conflicts = [_changed(key, base, now) for key in _required(request, behind=behind)]
    conflicts += [HEAD_MOVED] if request.at_head and behind else []
    conflicts += [_wrong_id(pointer, base, request) for pointer in request.puts]
    conflicts += [KeyConflict(".".join(name), "KEY_EXISTS") for name in request.namespaces if name in now]
    conflicts += [_not_empty(name, now) for name in request.drops]
    for name in removed_keys(request):
        now.pop(name, None)
    now |= {namespace: namespace for namespace in request.namespaces}
    now |= {pointer.table.parts: _with_id(pointer) for pointer in request.puts}
    conflicts += [_without_namespace(pointer.table.namespace, now) for pointer in request.puts]
    conflicts += [_without_namespace(namespace[:-1], now) for namespace in request.namespaces]
    found = list(dict.fromkeys(conflict for conflict in conflicts if conflict is not None))
    if found:
        raise commit_conflict(request.branch, request.base, found)
    return now


def removed_keys(request: CommitRequest) -> tuple[Key, ...]:
    """Return the keys that ``request`` removes."""
    return *(table.parts for table in request.deletes), *request.drops


def written_keys(request: CommitRequest) -> tuple[Key, ...]:
    """Return the keys that ``request`` writes or removes, in the order in which a commit names them."""
    return *request.namespaces, *(pointer.table.parts for pointer in request.puts), *removed_keys(request)


def differences(left: Contents, right: Contents) -> Iterator[TableDifference]:
    """Yield the keys whose content differs, by name."""
    for key in sorted(left.keys() | right.keys()):
        was, now = left.get(key), right.get(key)
        if was != now:
            before = was if isinstance(was, TablePointer) else None
            after = now if isinstance(now, TablePointer) else None
            kind = "table" if before or after else "namespace"
            yield TableDifference(table=".".join(key), kind=kind, left=before, right=after)


def _required(request: CommitRequest, *, behind: bool) -> Iterator[tuple[Key, bool]]:
    """Yield the keys that must be unchanged since the base, and whether their absence counts as a change."""
    for pointer in request.puts:
        yield pointer.table.parts, False
    for name in removed_keys(request):
        yield name, True
    changed = {pointer.table for pointer in request.puts} | set(request.deletes)
    for table in request.unchanged:
        if table not in changed:
            yield table.parts, behind


def _changed(required: tuple[Key, bool], base: Contents, now: Contents) -> KeyConflict | None:
    key, must_exist = required
    was, found = base.get(key), now.get(key)
    if found is None:
        return KeyConflict(".".join(key), "KEY_DOES_NOT_EXIST") if was is not None or must_exist else None
    if was == found:
        return None
    if was is None:
        return KeyConflict(".".join(key), "KEY_EXISTS")
    same_id = isinstance(was, TablePointer) and isinstance(found, TablePointer) and was.content_id == found.content_id
    return KeyConflict(".".join(key), "VALUE_DIFFERS" if same_id else "CONTENT_ID_DIFFERS")


def _wrong_id(pointer: TablePointer, base: Contents, request: CommitRequest) -> KeyConflict | None:
    was = base.get(pointer.table.parts)
    expected = {was.content_id if isinstance(was, TablePointer) else None}
    if expected == {None}:  # new, or renamed
        dropped = (base.get(table.parts) for table in request.deletes)
        expected |= {one.content_id for one in dropped if isinstance(one, TablePointer)}
    if pointer.content_id in expected:
        return None
    return KeyConflict(str(pointer.table), "KEY_EXISTS" if pointer.content_id is None else "CONTENT_ID_DIFFERS")


def _without_namespace(namespace: Key, now: Contents) -> KeyConflict | None:
    return KeyConflict(".".join(namespace), "NAMESPACE_ABSENT") if namespace and namespace not in now else None


def _not_empty(namespace: Key, now: Contents) -> KeyConflict | None:
    inner = any(key[: len(namespace)] == namespace and key != namespace for key in now)
    return KeyConflict(".".join(namespace), "NAMESPACE_NOT_EMPTY") if inner else None


def _with_id(pointer: TablePointer) -> TablePointer:
    return pointer if pointer.content_id else pointer.model_copy(update={"content_id": str(uuid4())})
