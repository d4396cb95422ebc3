"""Where a writer's tables and files may be: below the table's own folder, which the gate chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from uuid import uuid4

from lakegate.gate.openings import SHOWN, shown_properties
from lakegate.gate.refusals import RefusedError, bad_request
from lakegate.gate.updates import well_formed
from lakegate.iceberg.files import TableFiles, is_local, local_path
from lakegate.iceberg.manifests import read_list, read_manifest
from lakegate.iceberg.metadata import Document, find_snapshot, properties
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.locations import resolved
from lakegate.model.opening import Opening
from lakegate.model.tables import DELETING_PROPERTIES, FOLDER_PROPERTIES


def namespace_location(warehouse: str, namespace: Collection[str]) -> str:
    """Return the folder of a namespace's tables."""
    return "/".join((warehouse.rstrip("/"), *namespace))


def new_location(warehouse: str, table: TableIdentifier, asked: str | None) -> str:
    """Return a folder for a new table.

    Args:
        asked: The location that the writer asks for. It may be a new folder as Trino names it, and no other.

    Raises:
        RefusedError: The writer asks for another one.
    """
    folder = f"{namespace_location(warehouse, table.namespace)}/{table.name}"
    if not asked:
        return f"{folder}_{uuid4()}"
    if not re.fullmatch(re.escape(folder) + "-[0-9a-f]{32}", asked.rstrip("/")):
        raise bad_request(f"Leave out the location: the gate chooses a folder for each table, below {folder}_…")
    return asked.rstrip("/")


def without_shown(document: Document, before: Document | None, opening: Opening) -> Document:
    """Return new metadata without the properties that are only shown.

    Args:
        before: The metadata that the writer changed; ``None`` for a new table.

    Raises:
        RefusedError: The writer changed one of them, or another property that decides where files go or whether they
            are deleted.
    """
    was, now = ({} if one is None else properties(one) for one in (before, document))
    shown = shown_properties(document, opening)
    stored = dict(now)
    for key in {*SHOWN, *FOLDER_PROPERTIES, *DELETING_PROPERTIES}:
        if was.get(key) == now.get(key):
            continue
        if key in shown and now.get(key) == shown[key]:  # as the gate said, so there's nothing to store
            stored.pop(key)
            stored |= {key: was[key]} if key in was else {}
        elif key in DELETING_PROPERTIES and key not in shown and str(now.get(key, "false")).lower() == "false":
            continue
        else:
            raise _fixed_property(key)
    return {**document, "properties": stored}


def _fixed_property(key: str) -> RefusedError:
    if key in DELETING_PROPERTIES:
        return bad_request(f"{key} would let writers delete files that other branches need. Leave it out.")
    return bad_request(f"{key} is the gate's to choose: all files of a table are below its location. Leave it out.")


def require_own_files(
    files: TableFiles, before: Document | None, document: Document, reach: Callable[[], Collection[str]]
) -> None:
    """Refuse new metadata that lists a new file outside the table's folder: it may be another table's.

    Nothing outside is read.

    Args:
        before: The metadata that the writer changed; ``None`` for a new table.
        reach: Returns all files that ``before`` reaches. A rewritten manifest may list those again, wherever they are.
    """
    home = cache(lambda: f"{resolved(str(document['location']))}/")
    known = cache(lambda: frozenset(map(resolved, reach())))
    with well_formed():
        for what, path in _new_files(files, before, document):
            if not is_clean(path) or not (resolved(path).startswith(home()) or resolved(path) in known()):
                raise bad_request(
                    f"{what} {path[:300]} isn't in the table's folder {document['location']}. To add rows from files "
                    "elsewhere, insert them; or lakegate ingest takes the files."
                )


def make_folders(document: Document, opening: Opening) -> None:
    """Make a writer's folders in a warehouse on this machine, because not every writer does (DuckDB)."""
    shown = shown_properties(document, opening)
    for key in FOLDER_PROPERTIES:
        if key in shown and is_local(shown[key]):
            local_path(shown[key]).mkdir(parents=True, exist_ok=True)


def is_clean(path: str) -> bool:
    """Return whether a path has none of the parts that file systems and object stores may take for others."""
    return not any(part in (".", "..") for part in path.split("/")) and "\\" not in path and path.isprintable()


def _new_files(files: TableFiles, before: Document | None, document: Document) -> Iterator[tuple[str, str]]:
    """Yield each file that is new in ``document``, and what it is. A file is read only after it was yielded."""
    was = before or {}
    for key in ("statistics", "partition-statistics"):
        known = was.get(key) or ()
        yield from (("Statistics file", one["statistics-path"]) for one in document.get(key) or () if one not in known)
    for snapshot in document.get("snapshots") or ():
        if find_snapshot(was, snapshot["snapshot-id"]) is None:
            yield from _files_of(files, document, snapshot)


def _files_of(files: TableFiles, document: Document, snapshot: Document) -> Iterator[tuple[str, str]]:
    yield "Manifest list", snapshot["manifest-list"]
    parent = find_snapshot(document, snapshot.get("parent-snapshot-id") or 0)
    listed = () if parent is None or "manifest-list" not in parent else _manifests(files, parent)
    for manifest in _manifests(files, snapshot):
        if manifest in listed:
            continue
        yield "Manifest", manifest
        try:
            entries = read_manifest(files.content(manifest))
        except Exception as error:  # PyIceberg's parsers raise anything
            raise _unreadable("Manifest", manifest) from error
        yield from (("Data file", entry.data_file.file_path) for entry in entries)


def _manifests(files: TableFiles, snapshot: Document) -> Collection[str]:
    try:
        return [line.file.manifest_path for line in read_list(files.content(snapshot["manifest-list"])).manifests]
    except Exception as error:  # PyIceberg's parsers raise anything
        raise _unreadable("Manifest list", snapshot["manifest-list"]) from error


def _unreadable(what: str, path: str) -> RefusedError:
    return bad_request(f"{what} {path[:300]} can't be read: it doesn't exist, or isn't one.")
