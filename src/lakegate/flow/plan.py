"""Plan: everything that can be found wrong without writing is found here."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.audits import describe, validate_checks
from lakegate.errors import AlreadyExistsError, InputError, NotFoundError
from lakegate.flow.audit import schemas_at
from lakegate.flow.discard import is_named_for
from lakegate.flow.fit import require_fit
from lakegate.flow.rooms import Rooms
from lakegate.model.identifiers import validate_ref_name
from lakegate.model.order import IngestOrder
from lakegate.model.partitioning import PartitionTransform
from lakegate.model.plan import IngestPlan
from lakegate.model.refs import Ref
from lakegate.model.run import WriteRequest
from lakegate.model.schema import UNKNOWN, Schema

_TIME_TRANSFORMS = ("years", "months", "days", "hours")


def plan(rooms: Rooms, order: IngestOrder, *, base: Ref | None = None) -> IngestPlan:
    """Return what an ingest would do, or raise what would stop it. Changes nothing.

    Args:
        rooms: The lake's rooms.
        order: What is wanted.
        base: The target at the commit to start from; its head by default.

    Raises:
        IdentifierError: When the branch's name cannot name a branch.
        AlreadyExistsError: When it exists.
        InputError: When the engine cannot see the files, or the partitioning is wrong.
        SchemaError: When the batch does not fit the table.
        CheckError: When a check cannot be asked of the batch.
    """
    validate_ref_name(order.branch)
    engine = rooms.engine()
    batch = order.batch
    if not engine.shares_files and any(uri.startswith("file:") for uri in batch.uris):
        raise InputError(
            "The files are on this machine, the engine is on another one that cannot read them.",
            hint="Put them where the engine can read, or use the local engine (leave engine.url unset).",
            file=batch.files[0].uri,
        )
    base = base or rooms.catalog.get_ref(order.target)
    _require_new(rooms, order)
    pointer = rooms.catalog.get_table(order.table, base)
    if pointer is None:
        schema = _schema_to_create(engine.source_schema(batch), order.partition_by)
    else:
        schema = rooms.reader.metadata(pointer).table_schema
        batch = batch.named_like(schema.names)
        require_fit(engine.source_schema(batch), schema, name=order.table, file_format=batch.format)
    known = schemas_at(rooms, base)
    resolved = validate_checks(order.checks, schema, lambda table: schema if table == order.table else known(table))
    request = WriteRequest(
        run_id=order.run_id,
        table=order.table,
        branch=order.branch,
        base=base.hash,
        batch=batch,
        checks=resolved,
        partition_by=order.partition_by if pointer is None else (),
        target=order.target,
        on_failure=order.on_failure,
    )
    return IngestPlan(
        request=request,
        exists=pointer is not None,
        table_schema=schema,
        descriptions=tuple(describe(check) for check in resolved),
    )


def _require_new(rooms: Rooms, order: IngestOrder) -> None:
    if is_named_for(order.branch, order.table, order.run_id):
        return
    try:
        rooms.catalog.get_ref(order.branch)
    except NotFoundError:
        return
    raise AlreadyExistsError(
        f"Branch '{order.branch}' exists already.",
        hint=f"Choose another --branch, or drop it: lakegate discard {order.branch}",
        branch=order.branch,
    )


def _schema_to_create(source: Schema, partition_by: Sequence[str]) -> Schema:
    transforms = [PartitionTransform.parse(text) for text in partition_by]
    for transform in transforms:
        transform.validate_for(source)
    _require_distinct(transforms, partition_by)
    return Schema(
        columns=tuple(c.model_copy(update={"type": "string"}) if c.type == UNKNOWN else c for c in source.columns)
    )


def _require_distinct(transforms: Sequence[PartitionTransform], texts: Sequence[str]) -> None:
    # Iceberg refuses two transforms of a kind on one column, and all those of time are of one kind.
    known: dict[tuple[str, str], str] = {}
    for transform, text in zip(transforms, texts, strict=True):
        kind = "time" if transform.name in _TIME_TRANSFORMS else transform.name
        key = (kind, transform.column.lower())
        if key in known:
            raise InputError(
                f"Cannot partition by both {known[key]} and {text}: one of them says it all.",
                hint="Give a column once, and of years, months, days and hours only the finest.",
                column=transform.column,
            )
        known[key] = text
