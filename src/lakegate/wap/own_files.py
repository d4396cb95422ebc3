"""Refuse to publish a table that is made of another table's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from posixpath import dirname, normpath

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.tables import FOLDER_PROPERTIES
from lakegate.model.words import counted
from lakegate.wap.reachable import canonical

_TABLES_AT_ONCE = 16


def all_tables(context: Context, base: Ref, branch: Ref, target: str) -> Sequence[TablePointer]:
    """Return the states of all tables on a branch, and on its target if that has moved since ``base``."""
    head = context.catalog.get_ref(target)
    refs = (branch,) if head.hash == base.hash else (branch, head)
    pointers = (pointer for ref in refs for pointer in context.catalog.list_tables(ref))
    return list({pointer.metadata_location: pointer for pointer in pointers}.values())


def require_own_files(
    context: Context,
    before: TablePointer | None,
    pointer: TablePointer,
    branch: Ref,
    tables: Callable[[], Sequence[TablePointer]],
    *,
    by_anyone: bool,
) -> None:
    """Refuse a table that is another table under a second name: both would write among the same files.

    Args:
        tables: Returns the states of all tables.
        by_anyone: Whether the metadata may have been written by hand, and so list another table's files.

    Raises:
        InputError: When the branch points the table at a state of another table, at metadata in another table's folder,
            or at metadata that newly lists another table's files.
    """
    now = context.reader.metadata(pointer)
    then = None if before is None else context.reader.metadata(before)
    folder, metadata_folder = canonical(now.location), _metadata_folder(pointer)
    is_same_table = then is not None and (then.uuid, then.location) == (now.uuid, now.location)
    for other in () if is_same_table else _others(pointer, tables):
        # Compare paths first: reading the metadata of all tables is slow.
        if _metadata_folder(other) == metadata_folder or f"{_metadata_folder(other)}/".startswith(f"{folder}/"):
            known = context.reader.metadata(other)
            if known.uuid == now.uuid or canonical(known.location) == folder:
                what = f"its metadata file {pointer.metadata_location} has that table's UUID or location"
                raise _foreign_files_error(pointer, branch, other, what)
    if not by_anyone:
        return
    home = _resolved(now.location)
    listed = {_resolved(path): path for path in context.reader.new_files(before, pointer)}
    elsewhere = {path for path in listed if not path.startswith(f"{home}/")}
    if is_same_table:
        listed = {path: listed[path] for path in elsewhere}
    if not listed:
        return
    others = _others(pointer, tables)
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        above = {folder for path in listed for folder in _parents(path)}
        files_of = partial(_files_of, context=context, listed=listed, above=above, is_far=bool(elsewhere))
        for other, files in zip(others, pool.map(files_of, others), strict=True):
            earlier = map(_resolved, context.reader.reach(before)) if files and before is not None else ()
            theirs = files.difference(earlier)
            if theirs:
                what = f"it lists {counted(len(theirs), 'file')} of that table, such as {listed[min(theirs)]}"
                raise _foreign_files_error(pointer, branch, other, what)


def _files_of(
    other: TablePointer, *, context: Context, listed: Collection[str], above: set[str], is_far: bool
) -> set[str]:
    """Return which of the files ``listed`` are in the folder of ``other``; if none are, which of them it lists.

    Args:
        listed: A table's files, resolved.
        above: All folders above them.
        is_far: Whether some are outside the table's own folder, where any table may have files.
    """
    metadata_folder = _resolved(_metadata_folder(other))
    # Compare paths first: reading the metadata of all tables is slow.
    if not is_far and above.isdisjoint((metadata_folder, f"{metadata_folder.removesuffix('/metadata')}/data")):
        return set()
    try:
        known = context.reader.metadata(other)
    except (NotFoundError, InputError):
        return set()  # the other table is damaged, which is no reason to refuse this one
    home = _resolved(known.location)
    own = tuple(f"{home}/{name}/" for name in ("data", "metadata"))
    found = {path for path in listed if path.startswith(own)}
    # Several tables may share the folders that their properties name.
    named = (str(known.properties[key]) for key in FOLDER_PROPERTIES if known.properties.get(key))
    shared = {metadata_folder, *map(_resolved, named)}
    if found or above.isdisjoint(shared):
        return found
    try:
        return {path for path in map(_resolved, context.reader.reach(other)) if path in listed}
    except (NotFoundError, InputError):
        return set()


def _others(pointer: TablePointer, tables: Callable[[], Sequence[TablePointer]]) -> Sequence[TablePointer]:
    return [other for other in tables() if other.table != pointer.table]


def _foreign_files_error(pointer: TablePointer, branch: Ref, other: TablePointer, what: str) -> InputError:
    return InputError(
        f"Table {pointer.table} on branch '{branch.name}' is made of the files of {other.table}: {what}. "
        "It isn't published.",
        hint="Copy the rows into a table of its own on another branch, and drop this one: "
        f"lakegate discard {branch.name}",
        branch=branch.name,
        table=str(pointer.table),
        other=str(other.table),
    )


def _metadata_folder(pointer: TablePointer) -> str:
    return dirname(canonical(pointer.metadata_location))


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _resolved(location: str) -> str:
    """Return a canonical path without links and dots, because some object stores resolve dots in keys.

    Example:
        >>> _resolved("s3://bucket/a/../t/./data/f")
        's3:/bucket/t/data/f'
    """
    scheme, _, path = canonical(location).partition(":")
    if scheme == "file":
        return f"{scheme}:{os.path.realpath(path)}"
    return f"{scheme}:{normpath(path)}" if "/." in path else f"{scheme}:{path}"
