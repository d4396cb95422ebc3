"""The metadata of a table that a writer asks to create. Pure functions: they read and write nothing."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.gate.columns import check_columns, columns_of, with_ids
from lakegate.gate.updates import (
    FIRST_PARTITION_FIELD,
    RESERVED_PROPERTIES,
    apply_updates,
    well_formed,
)
from lakegate.iceberg.metadata import Document

_DEFAULT_VERSION = 2
_DEFAULTS = {"write.parquet.compression-codec": "zstd"}
"""What Iceberg's own catalogs give a new table."""


def new_table(request: Document, uuid: str, location: str) -> Document:
    """Return the metadata of the table that the body of ``POST tables`` describes.

    The server numbers the columns, as the specification has it.

    Raises:
        RefusedError: With status 400 if the request makes no sense.
    """
    with well_formed():
        properties = dict(request.get("properties") or {})
        version = int(properties.get("format-version", _DEFAULT_VERSION))
        asked = {"type": "struct", **request["schema"]}
        check_columns(asked, version)
        ids = {old: new for new, (old, _) in enumerate(columns_of(asked), 1)}
        partitioning = [
            {**_renumbered(field, ids), "field-id": FIRST_PARTITION_FIELD + index}
            for index, field in enumerate((request.get("partition-spec") or {}).get("fields") or ())
        ]
        order = request.get("write-order") or {"fields": []}
        kept = {key: value for key, value in properties.items() if key not in RESERVED_PROPERTIES}
        return apply_updates(
            None,
            None,
            [
                {"action": "assign-uuid", "uuid": uuid},
                {"action": "upgrade-format-version", "format-version": version},
                {"action": "set-location", "location": location},
                {"action": "add-schema", "schema": with_ids(asked, ids)},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"fields": partitioning}},
                {"action": "set-default-spec", "spec-id": -1},
                {
                    "action": "add-sort-order",
                    "sort-order": {**order, "fields": [_renumbered(field, ids) for field in order["fields"]]},
                },
                {"action": "set-default-sort-order", "sort-order-id": -1},
                {"action": "set-properties", "updates": {**_DEFAULTS, **kept}},
            ],
        )


def _renumbered(field: Document, ids: Mapping[int, int]) -> Document:
    """Return a field of a partition spec or sort order with its columns' new ids."""
    if "source-ids" in field:
        return {**field, "source-ids": [ids[one] for one in field["source-ids"]]}
    return {**field, "source-id": ids[field["source-id"]]}
