"""Refuse to publish a table that is made of another table's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakegate.context import Context
from lakegate.errors import InputError
from lakegate.model.locations import resolved
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.tables import FOLDER_PROPERTIES


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
) -> None:
    """Refuse a table with new files outside its own folders: another table may write and delete among them.

    Its own are its location, which is no other table's, and the folders that its properties have named before.

    Args:
        tables: Returns the states of all tables.

    Raises:
        InputError: When the branch gives the table a location that overlaps another table's, or lists a new file
            elsewhere.
    """
    now = context.reader.metadata(pointer)
    then = None if before is None else context.reader.metadata(before)
    home = f"{resolved(now.location)}/"
    if then is None or (then.uuid, then.location) != (now.uuid, now.location):
        for other in tables():
            theirs = f"{resolved(other.metadata_location.rpartition('/')[0]).removesuffix('/metadata')}/"
            if other.table != pointer.table and (theirs.startswith(home) or home.startswith(theirs)):
                raise _foreign_files(pointer, branch, f"its location {now.location} is that of {other.table}")
    properties = {} if then is None else then.properties
    named = (properties[key] for key in FOLDER_PROPERTIES if properties.get(key, "") == now.properties.get(key))
    folders = (home, *(f"{resolved(folder)}/" for folder in named))
    listed = {resolved(path): path for path in context.reader.new_files(before, pointer)}
    elsewhere = {path for path in listed if not path.startswith(folders)}
    if elsewhere and before is not None:  # a rewritten manifest lists older files again
        elsewhere.difference_update(map(resolved, context.reader.reach(before)))
    if elsewhere:
        path = listed[min(elsewhere)]
        raise _foreign_files(pointer, branch, f"it lists {path}, which isn't in its folder {now.location}")


def _foreign_files(pointer: TablePointer, branch: Ref, what: str) -> InputError:
    return InputError(
        f"Table {pointer.table} on branch '{branch.name}' isn't made of its own files: {what}. It isn't published.",
        hint="Copy the rows into a table of its own on another branch, and drop this one: "
        f"lakegate discard {branch.name}",
        branch=branch.name,
        table=str(pointer.table),
    )
