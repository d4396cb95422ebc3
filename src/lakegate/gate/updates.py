"""What writers ask for, applied to a table's metadata: requirements and updates of Iceberg's REST API.

They are applied to the metadata file's JSON, so that fields that nobody here knows survive. As the specification has
it, the server numbers new schemas, partition specs and sort orders. Pure functions: they read and write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from lakegate.gate.columns import NEWEST_VERSION, check_columns, columns_of
from lakegate.gate.refusals import RefusedError, bad_request, commit_failed
from lakegate.iceberg import metadata
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.validation import MAIN_BRANCH, check_shape
from lakegate.model.refs import NO_SNAPSHOT
from lakegate.model.tables import CLOCKS_DIFFER

LAST_ADDED: Final = -1
"""The id of the schema, partition spec or sort order that an earlier update of the same commit added."""
FIRST_PARTITION_FIELD: Final = 1000
"""The lowest id of a partition field."""
RESERVED_PROPERTIES: Final = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""What Iceberg shows as properties of a table, and never stores."""

_LONGEST_STEPS: Final = {
    "last-sequence-number": 2**32,
    "next-row-id": 2**48,
    "last-column-id": 2**16,
    "last-partition-id": 2**16,
}
"""How far a commit may move a table's counters, which never go back: at the last number, nobody could write to it."""
_CLOCKS_DIFFER_MS: Final = int(CLOCKS_DIFFER.total_seconds() * 1000)
_EMPTY: Document = {
    "format-version": 1,
    "last-sequence-number": 0,
    "last-updated-ms": 0,
    "last-column-id": 0,
    "schemas": [],
    "partition-specs": [],
    "last-partition-id": FIRST_PARTITION_FIELD - 1,
    "sort-orders": [],
    "properties": {},
    "current-snapshot-id": NO_SNAPSHOT,
    "refs": {},
    "snapshots": [],
    "statistics": [],
    "partition-statistics": [],
    "snapshot-log": [],
    "metadata-log": [],
}


@contextmanager
def well_formed() -> Iterator[None]:
    """Refuse what a writer sent if the body trips over its form."""
    try:
        yield
    except RefusedError:
        raise
    except RecursionError:
        raise bad_request("The request is nested too deeply.") from None
    except KeyError as error:
        raise bad_request(f"The request lacks {error}.") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise bad_request(f"The request isn't what Iceberg's REST API describes: {reason}.") from None


def check_requirements(document: Document | None, requirements: Sequence[Document]) -> None:
    """Check what a commit requires of the table; ``document`` is ``None`` if there's no such table.

    Raises:
        RefusedError: With status 409 if a requirement isn't met, 400 if it's none.
    """
    with well_formed():
        now = None if document is None else _with_lists(document)
        for one in requirements:
            _check_requirement(now, one)


_REQUIRED_IDS: Mapping[str, tuple[str, str]] = {
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id"),
    "assert-current-schema-id": ("current-schema-id", "current-schema-id"),
    "assert-last-assigned-partition-id": ("last-assigned-partition-id", "last-partition-id"),
    "assert-default-spec-id": ("default-spec-id", "default-spec-id"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id"),
}


def _check_requirement(document: Document | None, one: Document) -> None:
    kind = one["type"]
    if kind == "assert-create":
        if document is not None:
            raise commit_failed("Requirement failed: the table exists already.")
    elif document is None:
        raise commit_failed("Requirement failed: the table doesn't exist.")
    elif kind == "assert-table-uuid":
        if one["uuid"].lower() != document["table-uuid"].lower():
            raise commit_failed("Requirement failed: another table has this name now.")
    elif kind == "assert-ref-snapshot-id":
        now = (document.get("refs") or {}).get(one["ref"], {}).get("snapshot-id", NO_SNAPSHOT)
        wanted = one.get("snapshot-id")
        if now != (NO_SNAPSHOT if wanted is None else wanted):
            raise commit_failed(f"Requirement failed: {one['ref']} has changed: it's at snapshot {now}, not {wanted}.")
    elif kind in _REQUIRED_IDS:
        asked, key = _REQUIRED_IDS[kind]
        if one[asked] != document.get(key):
            raise commit_failed(f"Requirement failed: {key} has changed: it's {document.get(key)}, not {one[asked]}.")
    else:
        raise bad_request(f"The requirement {kind} isn't one of Iceberg's REST API.")


def apply_updates(document: Document | None, previous: str | None, updates: Sequence[Document]) -> Document:
    """Return the metadata after ``updates``.

    Args:
        document: The table's metadata; ``None`` to create a table.
        previous: Location of its metadata file, for the log of metadata files.

    Raises:
        RefusedError: With status 400 if an update is wrong or isn't allowed here, 409 if somebody was faster.
    """
    with well_formed():
        draft = _Draft(document)
        for one in updates:
            action = one["action"]
            if action not in _ACTIONS:
                raise _not_offered(action)
            _ACTIONS[action](draft, one)
        result = draft.finished(previous)
        check_shape(result)
        return result


def _not_offered(action: object) -> RefusedError:
    if action in ("add-encryption-key", "remove-encryption-key"):
        return bad_request("Encrypted tables can't be written here: no check could read them.")
    return bad_request(f"The update {str(action)[:100]} isn't one that can be made here.")


class _Draft:
    """Metadata in the making, and what earlier updates of the same commit added."""

    def __init__(self, base: Document | None) -> None:
        self.base = base
        self.document: dict[str, Any] = {**_EMPTY} if base is None else _with_lists(base)
        self.added: dict[str, int] = {}
        self.added_snapshots = dict[int, int]()
        """The ids of added snapshots, and their times in milliseconds since 1970."""

    def append(self, key: str, value: Document) -> None:
        self.document[key] = [*(self.document.get(key) or ()), value]

    def without(self, key: str, ids_key: str, gone: set[int]) -> None:
        self.document[key] = [one for one in self.document.get(key) or () if one.get(ids_key, 0) not in gone]

    def chosen(self, kind: str, wanted: int, known: set[int]) -> int:
        """Return the id that ``wanted`` names: one of the ``known``, or of what was added last."""
        number = self.added.get(kind) if wanted == LAST_ADDED else wanted
        if number is None or number not in known:
            raise bad_request(f"There is no {kind} {wanted}.")
        return number

    def now_ms(self) -> int:
        return metadata.now_ms(self.document)

    def finished(self, previous: str | None) -> Document:
        document, base = self.document, self.base
        if base is None:
            _complete(document)
        elif previous is not None:
            document = dict(metadata.next_metadata(document, previous, {}))
        newest = max(self.added_snapshots.values(), default=self.now_ms())
        document["last-updated-ms"] = max(newest, self.document["last-updated-ms"])
        if document["format-version"] == 1:  # its readers may know these only
            current, spec = document["current-schema-id"], document["default-spec-id"]
            document["schema"] = next(one for one in document["schemas"] if one.get("schema-id", 0) == current)
            document["partition-spec"] = metadata.specs(document)[spec]["fields"]
        _require_bound(document)
        _require_counted_on(_EMPTY if base is None else _with_lists(base), document)
        return document


def _with_lists(base: Document) -> dict[str, Any]:
    """Return a document of any version with the lists that format version 1 may lack."""
    if base["format-version"] > 1:
        return {**base}
    defaults = {
        "last-sequence-number": 0,
        "current-schema-id": base.get("schema", {}).get("schema-id", 0),
        "schemas": [{"schema-id": 0, **one} for one in metadata.schemas(base)],
        "default-spec-id": 0,
        "partition-specs": list(metadata.specs(base).values()),
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
    }
    document = {**defaults, **{key: value for key, value in base.items() if value is not None}}
    fields = [field for spec in document["partition-specs"] for field in spec["fields"]]
    last = max((field["field-id"] for field in fields), default=FIRST_PARTITION_FIELD - 1)
    return {"last-partition-id": last, **document}


def _complete(document: dict[str, Any]) -> None:
    """Require what a new table needs."""
    for key in ("table-uuid", "location", "current-schema-id", "default-spec-id"):
        if document.get(key) is None:
            raise bad_request(f"A new table needs {key}.")
    if "default-sort-order-id" not in document:
        document |= {"sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0}


def _require_bound(document: Document) -> None:
    """Require that the current schema has the columns that new rows are partitioned and sorted by."""
    current = document["current-schema-id"]
    columns = dict(columns_of(next(one for one in document["schemas"] if one.get("schema-id", 0) == current)))
    for what, listed, key in (
        ("partition spec", "partition-specs", "spec-id"),
        ("sort order", "sort-orders", "order-id"),
    ):
        wanted = document[f"default-{'spec' if key == 'spec-id' else 'sort-order'}-id"]
        for field in next(one for one in document[listed] if one[key] == wanted)["fields"]:
            sources = field["source-ids"] if "source-ids" in field else [field["source-id"]]
            if field["transform"] != "void" and not columns.keys() >= set(sources):
                raise bad_request(f"The {what} uses column {sources[0]}, which the schema doesn't have.")


def _require_counted_on(before: Document, after: Document) -> None:
    for key, longest in _LONGEST_STEPS.items():
        was, now = before.get(key, 0), after.get(key, 0)
        if now - was > longest:
            raise bad_request(f"{key} would go from {was} to {now} at once. Count on from the table's own number.")


def _assign_uuid(draft: _Draft, update: Document) -> None:
    if draft.document.get("table-uuid") not in (None, update["uuid"]):
        raise bad_request("A table's UUID can't be changed.")
    draft.document["table-uuid"] = update["uuid"]


def _upgrade(draft: _Draft, update: Document) -> None:
    version, now = update["format-version"], draft.document["format-version"]
    if version not in range(1, NEWEST_VERSION + 1):
        raise bad_request(f"Format version {version} isn't known here; the newest is {NEWEST_VERSION}.")
    if draft.base is not None and version < now:
        raise bad_request(f"The table has format version {now}, which can't be lowered to {version}.")
    draft.document["format-version"] = version
    if version > 1:
        for old in ("schema", "partition-spec"):
            draft.document.pop(old, None)
    if version >= NEWEST_VERSION:
        draft.document.setdefault("next-row-id", 0)


def _add_schema(draft: _Draft, update: Document) -> None:
    schema, document = {"type": "struct", **update["schema"]}, draft.document
    check_columns(schema, document["format-version"])
    found = next((one for one in document["schemas"] if _columns(one) == _columns(schema)), None)
    if found is None:
        number = max((one.get("schema-id", 0) for one in document["schemas"]), default=-1) + 1
        found = {**schema, "schema-id": number}
        draft.append("schemas", found)
    document["last-column-id"] = max(document["last-column-id"], *(number for number, _ in columns_of(schema)), 0)
    draft.added["schema"] = found.get("schema-id", 0)


def _columns(schema: Document) -> tuple[Any, list[int]]:
    return schema["fields"], sorted(schema.get("identifier-field-ids") or ())


def _set_current_schema(draft: _Draft, update: Document) -> None:
    known = {one.get("schema-id", 0) for one in draft.document["schemas"]}
    draft.document["current-schema-id"] = draft.chosen("schema", update["schema-id"], known)


def _add_spec(draft: _Draft, update: Document) -> None:
    specs = draft.document["partition-specs"]
    fields = update["spec"]["fields"]
    found = next((one for one in specs if _layout(one["fields"]) == _layout(fields)), None)
    if found is None:
        number = max((one["spec-id"] for one in specs), default=-1) + 1
        found = {**update["spec"], "spec-id": number, "fields": _numbered(draft.document, fields)}
        draft.append("partition-specs", found)
        ids = [field["field-id"] for field in found["fields"]]
        draft.document["last-partition-id"] = max(draft.document["last-partition-id"], *ids, 0)
    draft.added["partition spec"] = found["spec-id"]


def _layout(fields: Sequence[Document]) -> list[tuple[Any, ...]]:
    return [(_source(field), field["transform"], field["name"]) for field in fields]


def _source(field: Document) -> tuple[int, ...]:
    return tuple(field["source-ids"]) if "source-ids" in field else (field["source-id"],)


def _numbered(document: Document, fields: Sequence[Document]) -> list[Document]:
    """Return partition fields with ids: the same transform of the same column always has the same one."""
    known = {
        (_source(field), field["transform"]): field["field-id"]
        for spec in document["partition-specs"]
        for field in spec["fields"]
    }
    owners = {number: what for what, number in known.items()}
    last, numbered = document["last-partition-id"], list[Document]()
    for field in fields:
        what = _source(field), field["transform"]
        number = known.get(what, field.get("field-id"))
        if number is None:
            number = last + 1
        if owners.setdefault(number, what) != what:
            raise bad_request(f"Partition field {field['name']} has the id {number} of another one.")
        last = max(last, number)
        numbered.append({**field, "field-id": number})
    return numbered


def _set_default_spec(draft: _Draft, update: Document) -> None:
    known = {one["spec-id"] for one in draft.document["partition-specs"]}
    draft.document["default-spec-id"] = draft.chosen("partition spec", update["spec-id"], known)


def _add_sort_order(draft: _Draft, update: Document) -> None:
    orders, fields = draft.document["sort-orders"], update["sort-order"]["fields"]
    found = next((one for one in orders if one["fields"] == fields), None)
    if found is None:
        number = max((one["order-id"] for one in orders), default=0) + 1 if fields else 0
        found = {**update["sort-order"], "order-id": number}
        draft.append("sort-orders", found)
    draft.added["sort order"] = found["order-id"]


def _set_default_sort_order(draft: _Draft, update: Document) -> None:
    known = {one["order-id"] for one in draft.document["sort-orders"]}
    draft.document["default-sort-order-id"] = draft.chosen("sort order", update["sort-order-id"], known)


def _add_snapshot(draft: _Draft, update: Document) -> None:
    snapshot, document = update["snapshot"], draft.document
    number, time_ms = snapshot.get("sequence-number", 0), snapshot["timestamp-ms"]
    if snapshot["snapshot-id"] < 1:
        raise bad_request(f"The id of a snapshot is a positive number, not {snapshot['snapshot-id']}.")
    # One that this commit removes stays what it was: the id means those files to everybody who has read it.
    if any(metadata.find_snapshot(one, snapshot["snapshot-id"]) is not None for one in (draft.base or {}, document)):
        raise commit_failed(f"The table has snapshot {snapshot['snapshot-id']} already.")
    if not snapshot.get("manifest-list"):
        raise bad_request("A snapshot needs a manifest list.")
    parent = snapshot.get("parent-snapshot-id")
    if parent is not None and metadata.find_snapshot(document, parent) is None:
        raise commit_failed(f"The table doesn't have the parent snapshot {parent} (any more).")
    if document["format-version"] > 1 and number <= document["last-sequence-number"]:
        raise commit_failed(f"Sequence number {number} is taken: the table is at {document['last-sequence-number']}.")
    if time_ms < document["last-updated-ms"] - _CLOCKS_DIFFER_MS:
        raise bad_request(
            f"Snapshot {snapshot['snapshot-id']} is older than the table's last change, by the clock of the machine "
            "that wrote it. Set that clock."
        )
    if document["format-version"] >= NEWEST_VERSION:
        document["next-row-id"] = _next_row_id(snapshot, document["next-row-id"])
    draft.append("snapshots", snapshot)
    document["last-sequence-number"] = max(number, document["last-sequence-number"])
    draft.added_snapshots[snapshot["snapshot-id"]] = time_ms


def _next_row_id(snapshot: Document, expected: int) -> int:
    """Return the row id after those of a new snapshot (Iceberg spec, "Row Lineage")."""
    first, added = snapshot.get("first-row-id"), snapshot.get("added-rows")
    if first is None or added is None or added < 0:
        raise bad_request("A snapshot of a table of format version 3 needs first-row-id and added-rows.")
    if first < expected:
        raise commit_failed(f"Row id {first} is taken: the next one is {expected}.")
    return int(first) + int(added)


def _require_main(update: Document) -> None:
    if update["ref-name"] != MAIN_BRANCH:
        raise bad_request(
            f"'{str(update['ref-name'])[:100]}': branches and tags inside a table can't be made or changed here, "
            "because no check reads them. lakegate's own branches and tags hold all tables: lakegate tag create"
        )


def _set_ref(draft: _Draft, update: Document) -> None:
    _require_main(update)
    document, number = draft.document, update["snapshot-id"]
    if update["type"] != "branch":
        raise bad_request(f"'{MAIN_BRANCH}' is a branch.")
    if metadata.find_snapshot(document, number) is None:
        raise bad_request(f"There is no snapshot {number}.")
    refs = document.get("refs") or {}
    before = refs.get(MAIN_BRANCH, {}).get("snapshot-id")
    kept = ("snapshot-id", "type", "max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep")
    document["refs"] = {**refs, MAIN_BRANCH: {key: update[key] for key in kept if update.get(key) is not None}}
    if before == number:
        return
    document["current-snapshot-id"] = number
    log = list(document.get("snapshot-log") or ())
    if log and log[-1]["snapshot-id"] in draft.added_snapshots:  # nobody ever saw it as current
        log.pop()
    time_ms = draft.added_snapshots.get(number, draft.now_ms())
    document["snapshot-log"] = [*log, {"timestamp-ms": time_ms, "snapshot-id": number}]


def _remove_ref(draft: _Draft, update: Document) -> None:
    _require_main(update)
    refs = {name: one for name, one in (draft.document.get("refs") or {}).items() if name != MAIN_BRANCH}
    draft.document |= {"refs": refs, "current-snapshot-id": NO_SNAPSHOT, "snapshot-log": []}


def _remove_snapshots(draft: _Draft, update: Document) -> None:
    document, gone = draft.document, set(update["snapshot-ids"])
    named = {one["snapshot-id"] for one in (document.get("refs") or {}).values()}
    if gone & {*named, document.get("current-snapshot-id")}:
        raise bad_request("The current snapshot, and those of branches and tags, can't be removed.")
    for key in ("snapshots", "statistics", "partition-statistics"):
        if key in document:
            draft.without(key, "snapshot-id", gone)
    log = list(document.get("snapshot-log") or ())
    removed = [index for index, entry in enumerate(log) if entry["snapshot-id"] in gone]
    document["snapshot-log"] = log[removed[-1] + 1 :] if removed else log


def _set_location(draft: _Draft, update: Document) -> None:
    now, wanted = draft.document.get("location"), update["location"].rstrip("/")
    if draft.base is not None and wanted != str(now).rstrip("/"):
        raise bad_request("A table's location can't be changed: its files are there, and nobody else's.")
    draft.document["location"] = wanted if now is None else now


def _set_properties(draft: _Draft, update: Document) -> None:
    asked = dict(update["updates"])
    version = asked.get("format-version")
    if version is not None and version != str(draft.document["format-version"]):
        raise bad_request("format-version isn't a property: upgrade the table with upgrade-format-version.")
    kept = {key: value for key, value in asked.items() if key not in RESERVED_PROPERTIES}
    draft.document["properties"] = {**(draft.document.get("properties") or {}), **kept}


def _remove_properties(draft: _Draft, update: Document) -> None:
    gone = set(update["removals"])
    kept = {key: value for key, value in (draft.document.get("properties") or {}).items() if key not in gone}
    draft.document["properties"] = kept


def _statistics(key: str) -> Callable[[_Draft, Document], None]:
    def change(draft: _Draft, update: Document) -> None:
        new: Document | None = update.get(key)
        if update["action"].startswith("set-") and new is None:
            raise bad_request(f"{update['action']} needs {key}.")
        draft.without(key, "snapshot-id", {update["snapshot-id"] if new is None else new["snapshot-id"]})
        if new is not None:
            draft.append(key, new)

    return change


def _remove_specs(draft: _Draft, update: Document) -> None:
    if draft.document["default-spec-id"] in update["spec-ids"]:
        raise bad_request("The default partition spec can't be removed.")
    draft.without("partition-specs", "spec-id", set(update["spec-ids"]))


def _remove_schemas(draft: _Draft, update: Document) -> None:
    if draft.document["current-schema-id"] in update["schema-ids"]:
        raise bad_request("The current schema can't be removed.")
    draft.without("schemas", "schema-id", set(update["schema-ids"]))


_ACTIONS: Mapping[Any, Callable[[_Draft, Document], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade,
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-spec": _add_spec,
    "set-default-spec": _set_default_spec,
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_default_sort_order,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshot-ref": _remove_ref,
    "remove-snapshots": _remove_snapshots,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _statistics("statistics"),
    "remove-statistics": _statistics("statistics"),
    "set-partition-statistics": _statistics("partition-statistics"),
    "remove-partition-statistics": _statistics("partition-statistics"),
    "remove-partition-specs": _remove_specs,
    "remove-schemas": _remove_schemas,
}
