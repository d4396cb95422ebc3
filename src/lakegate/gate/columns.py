"""A schema's JSON: its columns at any depth, what is wrong with them, and other ids for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lakegate.gate.refusals import bad_request
from lakegate.iceberg.metadata import Document

NEWEST_VERSION: Final = 3
"""The newest format version."""
_SINCE_VERSION_3 = ("timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography")


def columns_of(kind: Any) -> Iterator[tuple[int, Any]]:
    """Yield the id and the type of each field in a type's JSON, as Iceberg numbers them: a struct's own ones first."""
    if not isinstance(kind, Mapping):
        return
    if kind["type"] == "struct":
        own = [(field["id"], field["type"]) for field in kind["fields"]]
    elif kind["type"] == "list":
        own = [(kind["element-id"], kind["element"])]
    else:
        own = [(kind["key-id"], kind["key"]), (kind["value-id"], kind["value"])]
    yield from own
    for _, child in own:
        yield from columns_of(child)


def check_columns(schema: Document, version: int) -> None:
    """Refuse a schema that gives two fields one id, or needs a newer format version than the table's."""
    found = list(columns_of(schema))
    ids = [number for number, _ in found]
    if len(ids) != len(set(ids)):
        raise bad_request(f"The schema gives two fields the id {next(one for one in ids if ids.count(one) > 1)}.")
    newer = next((kind for _, kind in found if str(kind).startswith(_SINCE_VERSION_3)), None)
    if newer is not None and version < NEWEST_VERSION:
        raise bad_request(f"A column of type {newer} needs format version 3; the table has {version}.")


def with_ids(schema: Document, ids: Mapping[int, int]) -> Document:
    """Return a schema with other field ids."""
    fresh: dict[str, Any] = _renumbered(schema, ids)
    keys = fresh.get("identifier-field-ids")
    return {**fresh, "identifier-field-ids": [ids[key] for key in keys]} if keys else fresh


def _renumbered(kind: Any, ids: Mapping[int, int]) -> Any:
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        fields = [{**one, "id": ids[one["id"]], "type": _renumbered(one["type"], ids)} for one in kind["fields"]]
        return {**kind, "fields": fields}
    numbered = {key: ids[kind[key]] for key in ("element-id", "key-id", "value-id") if key in kind}
    inner = {key: _renumbered(kind[key], ids) for key in ("element", "key", "value") if key in kind}
    return {**kind, **numbered, **inner}
