"""Plan: find every problem that can be found without writing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from lakegate.checks import Check, columns_match, describe, require_runnable, validate_checks
from lakegate.context import Context
from lakegate.errors import AlreadyExistsError, ConflictError, InputError, SchemaError
from lakegate.model.batch import HEADERLESS, SHORTENED, Batch, SourceFile
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.refs import Ref
from lakegate.model.request import ContractTerms, IngestPlan, IngestRequest, WriteMode
from lakegate.model.schema import Column, PartitionTransform, Schema
from lakegate.model.types import type_differences, unknown_as_string, without_unknown
from lakegate.model.words import counted
from lakegate.ports import Engine
from lakegate.wap.audit import schemas_at
from lakegate.wap.claims import new_files
from lakegate.wap.discard import is_named_for, ref_exists
from lakegate.wap.modes import columns_to_write, require_mode, resolve_mode
from lakegate.wap.quarantine import quarantines_rows, require_not_reserved, require_quarantinable
from lakegate.wap.schema_fit import Fit, because, fit, fits, rounding, why_not
from lakegate.wap.stage import missing_namespaces

CONTRACT_COLUMNS = "contract_columns"
"""Name of the check that compares a table with its contract's columns."""
_DIGITS = {"float": 7, "double": 17}
_DUMPED = r"\N"
_PANDAS_INDEX = re.compile("__index_level_[0-9]+__")
_MOST_DIGITS = 38
"""Digits of the longest decimal."""
_SIGN_AND_ZERO = 2
"""Characters that ``digits`` may count although they aren't significant digits: the sign, and a leading zero."""
_TIME_TRANSFORMS = ("years", "months", "days", "hours")


def plan(context: Context, request: IngestRequest, *, base: Ref | None = None) -> IngestPlan:
    """Resolve an ingest request, or raise the error that would stop the ingest. Changes nothing.

    Args:
        base: The target at the commit to start from; its head by default.

    Raises:
        ConfigurationError: When the name of the table, or of its quarantine table, is reserved or taken.
        IdentifierError: When the branch's name is invalid.
        InputError: When the engine can't read the files, or the partitioning is invalid.
        SchemaError: When the batch doesn't fit the table.
        CheckError: When a check can't be run on the batch, or its severity can't be combined with the request's mode.
    """
    validate_ref_name(request.branch)
    require_not_reserved(request.table)
    engine = context.engine()
    masked = (*context.masked, *request.masked)
    planned: dict[str, object] = {}
    _require_shared_files(engine, request.batch)
    base = base or context.catalog.get_ref(request.target)
    _require_unchanged(context, request, base)
    _require_new_branch(context, request)
    pointer = context.catalog.get_table(request.table, base)
    mode = request.mode
    partition_by = request.partition_by if pointer is None else context.reader.metadata(pointer).partition_by
    require_mode(context, request, pointer, partition_by, base)
    if pointer is None:
        missing_namespaces(context, request.table.namespace, base)  # raises when one of them is a table
    existing = None if pointer is None else context.reader.metadata(pointer).table_schema
    new = request.batch.files if pointer is None else new_files(context.journal, request)
    planned["unread"] = tuple(sorted({*request.batch.uris} - {file.uri for file in new}))
    source_schema = partial(_source_schema, context, engine, new or request.batch.files[:1])
    batch, schema, found, planned["create_as"] = fit_batch(request, source_schema, existing, masked=masked)
    known = schemas_at(context, base)
    resolved = validate_checks(
        request.checks,
        schema,
        lambda table: schema if table == request.table else known(table),
        masked=context.masked,
    )
    require_runnable(resolved, schema, lambda: engine)
    for note in (*text_notes(batch, schema, resolved, exists=pointer is not None), *zone_notes(batch, schema)):
        context.narrator.note(note)
    if quarantines_rows(resolved):
        require_quarantinable(context, request.table, schema, base)
    planned |= {"base": base.hash, "batch": batch, "checks": resolved, "schema_changes": found.changes}
    planned |= {
        "mode": resolve_mode(mode, schema, request.table),
        "reads": tuple(dict.fromkeys((*request.reads, *(() if mode.appends else (str(request.table),))))),
    }
    if pointer is not None:
        planned["partition_by"] = ()
    return IngestPlan(
        request=request.model_copy(update=planned),
        exists=pointer is not None,
        table_schema=schema,
        descriptions=tuple(describe(check) for check in resolved),
        notes=found.notes,
    )


def _source_schema(context: Context, engine: Engine, files: tuple[SourceFile, ...], batch: Batch) -> Schema:
    """Return the columns of those of the batch's files that aren't published yet."""
    # The first to ask also waits for the engine's session.
    with context.narrator.step(f"Reading the columns of {counted(len(files), 'file')}"):
        return engine.source_schema(batch.only(files))


class FittedBatch(NamedTuple):
    """A batch and the table's columns with it; ``create_as`` are those of a new table, if the files have others."""

    batch: Batch
    schema: Schema
    fit: Fit
    create_as: Schema | None = None


def fit_batch(
    request: IngestRequest,
    source_schema: Callable[[Batch], Schema],
    existing: Schema | None,
    *,
    masked: Sequence[str],
) -> FittedBatch:
    """Fit a request's batch to the columns of its table and its contract.

    Args:
        source_schema: Returns a batch's columns as the engine would write them.
        existing: The table's columns; ``None`` if it doesn't exist.
        masked: Patterns of columns whose values aren't shown.

    Raises:
        SchemaError: When the batch doesn't fit.
        InputError: When the partitioning is invalid.
    """
    batch, terms, mode = request.batch, request.contract, request.mode
    if existing is None:
        if terms is not None:
            batch = batch.named_like(tuple(one.name for one in terms.columns))
        batch = batch.hiding(masked)
        source = source_schema(batch)
        schema, found = _schema_to_create(request, batch, source)
        is_other = terms is not None or batch.timezone is not None
        create_as = schema if (is_other and schema != source) or found.notes else None
        return FittedBatch(batch, schema, found, create_as)
    batch = batch.named_like(existing.names).hiding(masked)
    source = source_schema(batch)
    _require_csv_columns(request.table, batch, existing)
    source = columns_to_write(mode, source, existing, request.table)
    found = fit(
        source,
        existing,
        name=request.table,
        file_format=batch.format,
        mode=request.schema_mode,
        texts=batch.texts,
        updates=mode.name == "upsert",
        kept=_kept_types(source, request),
        timezone=batch.timezone,
    )
    schema = existing.changed(found.changes)
    if terms is not None:
        require_contract(schema, terms, name=request.table)
    return FittedBatch(batch, schema, found)


def text_notes(batch: Batch, schema: Schema, checks: Sequence[Check], *, exists: bool) -> Iterator[str]:
    """Yield a sentence for each column whose values may be read differently from how they were meant."""
    if not exists:
        yield from _name_notes(batch, schema.names)
    not_null = {column.lower() for check in checks if check.kind == "not_null" for column in check.columns}
    for text in batch.texts:
        column = schema.find(text.name)
        if column is None:
            continue
        if column.type == "string" and not exists and (why := because(text)):
            given = f"decimal({text.digits}, {text.fraction})"
            is_long = not text.odd and text.digits <= _MOST_DIGITS
            way = f" To have numbers: --types '{column.name}={given}'" if is_long else ""
            yield f"Column '{column.name}' is text{why}.{way}"
        if column.type != "string" and re.search(SHORTENED, text.odd):
            yield (
                f"Column '{column.name}' has '{text.odd}' in {text.odd_at}: Excel writes long numbers so, and the file "
                "then lacks their other digits. If so, format the column there as a number, and save it again."
            )
        if column.type == "double" and not exists and text.whole:
            yield (
                f"Column '{column.name}' is double, because its whole numbers are written like 6.0. To have integers: "
                f"--types {column.name}=long"
            )
        if column.type == "string" and _DUMPED in text.words:
            yield (
                f"Column '{column.name}' is text and contains '{_DUMPED}', which databases write for NULL. If it's so "
                f"here, pass --null-value '{_DUMPED}'."
            )
        elif column.type == "string" and text.words and column.name.lower() in not_null:
            word = text.words[0]
            yield (
                f"Column '{column.name}' is text and contains '{word}', which not_null accepts because it isn't NULL. "
                f"If it says that there's no value, pass --null-value {word}: it's then NULL in every column."
            )
        if text.digits - _SIGN_AND_ZERO > _DIGITS.get(column.type, text.digits):
            yield (
                f"Column '{column.name}' contains numbers of up to {text.digits} digits. A {column.type} keeps "
                f"{_DIGITS[column.type]}, so some may be rounded."
            )


def _name_notes(batch: Batch, names: Sequence[str]) -> Iterator[str]:
    value = next(filter(HEADERLESS.fullmatch, names), None)
    if value is not None and batch.csv is not None and batch.csv.header:
        yield f"A column is called '{value}'. If the first line is a row instead of a header, pass --no-header."
    index = next(filter(_PANDAS_INDEX.fullmatch, names), None)
    if index is not None:
        yield f"Column '{index}' is the index of a pandas frame. To leave it out, write the file with index=False."


def zone_notes(batch: Batch, schema: Schema) -> Iterator[str]:
    """Yield a sentence that says which times without a zone are read in which zone."""
    times = (
        found.name
        for found in batch.columns
        if found.type.startswith(("date", "timestamp")) and "tz=" not in found.type
    )
    names = [name for name in times if (column := schema.find(name)) is not None and column.type == "timestamptz"]
    if names and batch.timezone is not None:
        yield (
            f"Times without a zone in {', '.join(names)} are read as times in {batch.timezone}. Those of the hour that "
            "occurs twice when clocks are put back are taken for the earlier one."
        )


def _require_csv_columns(table: TableIdentifier, batch: Batch, schema: Schema) -> None:
    """Refuse CSV that has no header and a different number of columns than the table: nothing says which is which."""
    if batch.csv is not None and not batch.csv.header and len(batch.columns) != len(schema.columns):
        raise SchemaError(
            f"The batch has {len(batch.columns)} columns without names, and {table} has {len(schema.columns)}.",
            hint=f"Add a header line to the files. To see the table's columns: lakegate table show {table}",
            table=str(table),
        )


def _require_shared_files(engine: Engine, batch: Batch) -> None:
    """Refuse local files that the engine can't read."""
    if not engine.shares_files and any(uri.startswith("file:") for uri in batch.read_uris):
        raise InputError(
            "The files are on this machine, but the engine runs on another one and can't read them.",
            hint="If the warehouse is in an object store (catalog.warehouse), lakegate copies the files there for the "
            "run. Or use the local engine (leave engine.url unset).",
            file=batch.files[0].uri,
        )


def _require_unchanged(context: Context, request: IngestRequest, base: Ref) -> None:
    """Refuse rows that were computed from tables that have changed."""
    if not request.reads or request.reads_at == base.hash:
        return
    tables = [TableIdentifier.stored(name) for name in request.reads]
    read = context.catalog.get_tables(tables, Ref.detached(request.reads_at))
    now = context.catalog.get_tables(tables, base)
    moved = next((table for table in tables if read[table] != now[table]), None)
    if moved is not None:
        raise ConflictError(
            f"{moved} changed on {request.target} after the query read it; nothing was published.",
            hint="Run it again.",
            table=str(moved),
            run_id=request.run_id,
        )


def _require_new_branch(context: Context, request: IngestRequest) -> None:
    is_own = is_named_for(request.branch, request.table, request.run_id)
    if is_own or not ref_exists(context, request.branch):
        return
    raise AlreadyExistsError(
        f"Branch '{request.branch}' exists already.",
        hint="--branch names the new branch that the batch is published from."
        if request.branch == request.target
        else f"Choose another --branch, or drop it: lakegate discard {request.branch}",
        branch=request.branch,
    )


def _schema_to_create(request: IngestRequest, batch: Batch, source: Schema) -> tuple[Schema, Fit]:
    """Return a new table's columns, and notes about columns that are left out because they have no values yet.

    If such a column were created as text now, it couldn't become a number later.
    """
    notes: list[str] = []
    if request.schema_mode == "evolve" and request.contract is None:
        source, notes = _columns_with_values(request, source)
    schema = schema_of_new_table(request.table, batch, source, request.contract, request.mode)
    transforms = [PartitionTransform.parse(text) for text in request.partition_by]
    for transform in transforms:
        transform.validate_for(schema)
    _require_distinct(transforms, request.partition_by)
    return schema, Fit(notes=tuple(notes))


def _columns_with_values(request: IngestRequest, source: Schema) -> tuple[Schema, list[str]]:
    """Return the columns and fields that have values or may be needed, and a sentence for each of the others."""
    kept, notes = [], []
    for column in source.columns:
        kind = column.type if _may_be_needed(column.name, request) else without_unknown(column.type)
        without = "has no values; it's left out until it has some."
        if kind is None:
            notes.append(f"Column '{column.name}' {without}")
            continue
        kept.append(column.model_copy(update={"type": kind}))
        left_out = (one for one in type_differences(column.type, kind, (column.name,)) if one.other is None)
        notes += [f"Field '{one.name}' {without}" for one in left_out]
    return (Schema(columns=tuple(kept)), notes) if kept else (source, [])


def _may_be_needed(column: str, request: IngestRequest) -> bool:
    """Return whether a request may name a column, so that it would fail without the column."""
    asked = (*map(str, request.checks), *request.partition_by, *request.mode.key, request.mode.delete_when or "")
    return any(re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text, re.IGNORECASE) for text in asked)


def _kept_types(source: Schema, request: IngestRequest) -> dict[str, str]:
    """Return the types of columns that have no values, or lack some, but that the table gets anyway."""
    terms = Schema(columns=()) if request.contract is None else Schema(columns=request.contract.columns)
    found = {}
    for column in source.columns:
        term, has_values = terms.find(column.name), without_unknown(column.type)
        if has_values == column.type:
            continue
        if term is not None and term.type and fits(column, term, request.batch.format, timezone=request.batch.timezone):
            found[column.name] = term.type
        elif has_values is None and (term is not None or _may_be_needed(column.name, request)):
            found[column.name] = unknown_as_string(column.type)
        else:
            kind = without_unknown(column.type, column.name, lambda path: _may_be_needed(path, request))
            if kind is not None and kind != has_values:
                found[column.name] = kind
    return found


def schema_of_new_table(
    table: TableIdentifier, batch: Batch, source: Schema, terms: ContractTerms | None, mode: WriteMode
) -> Schema:
    """Return the columns of a table that is created for a batch.

    Args:
        terms: The terms of the table's contract, if it has one; its types take precedence.
    """
    listed = None if terms is None or terms.extra_columns else Schema(columns=terms.columns)
    source = columns_to_write(mode, source, listed, table)
    if batch.timezone is not None:
        named = {one.name for one in terms.columns if one.type} if terms is not None else set()
        source = Schema(columns=tuple(one if one.name in named else _with_zone(one) for one in source.columns))
    schema = source if terms is None else _as_contracted(table, batch, source, terms)
    return Schema(columns=tuple(one.model_copy(update={"type": unknown_as_string(one.type)}) for one in schema.columns))


def _with_zone(column: Column) -> Column:
    return column.model_copy(update={"type": "timestamptz"}) if column.type == "timestamp" else column


def _as_contracted(table: TableIdentifier, batch: Batch, source: Schema, terms: ContractTerms) -> Schema:
    wanted = {found.name: one for one in terms.columns if one.type and (found := source.find(one.name)) is not None}
    differences = list(_missing_or_extra(source, terms))
    texts = {text.name.lower(): text for text in batch.texts}
    for column in source.columns:
        one, text = wanted.get(column.name), texts.get(column.name.lower())
        if one is not None and not fits(column, one, batch.format, text, batch.timezone):
            why = why_not(column, one, text)
            differences.append(
                f"column '{column.name}' is {column.type} in the batch and {one.type} in the contract{why}"
            )
        elif one is not None and (rounded := rounding(text, one)):
            differences.append(rounded)
    if differences:
        raise _contract_error("The batch", table, terms, differences)
    return Schema(
        columns=tuple(
            one.model_copy(update={"type": wanted[one.name].type}) if one.name in wanted else one
            for one in source.columns
        )
    )


def require_contract(schema: Schema, terms: ContractTerms, *, name: TableIdentifier) -> None:
    """Check that a table has the columns that its contract names.

    Raises:
        SchemaError: Listing every difference.
    """
    differences = list(_missing_or_extra(schema, terms))
    for one in terms.columns:
        column = schema.find(one.name)
        if column is not None and one.type and any(type_differences(column.type, one.type)):
            differences.append(f"column '{column.name}' is {column.type} in the table and {one.type} in the contract")
    if differences:
        raise _contract_error("The table", name, terms, differences)


def contract_check(terms: ContractTerms) -> Check | None:
    """Return a check that compares a table with a contract's columns; ``None`` if the contract lists none."""
    if not terms.columns:
        return None
    return columns_match(
        [f"{one.name}: {one.type}" if one.type else one.name for one in terms.columns],
        mode="additive" if terms.extra_columns else "strict",
        ignore_case=True,
        name=CONTRACT_COLUMNS,
        description=f"The columns of {terms.file}.",
    )


def _missing_or_extra(schema: Schema, terms: ContractTerms) -> Iterator[str]:
    for one in terms.columns:
        if schema.find(one.name) is None:
            guess = schema.nearest(one.name)
            like = f" (there is '{guess}')" if guess else ""
            yield f"column '{one.name}' of the contract is missing{like}"
    if not terms.extra_columns:
        listed = Schema(columns=terms.columns)
        yield from (
            f"column '{column.name}' isn't in the contract" for column in schema.columns if not listed.find(column.name)
        )


def _contract_error(what: str, name: TableIdentifier, terms: ContractTerms, differences: Sequence[str]) -> SchemaError:
    listed = f" {differences[0]}" if len(differences) == 1 else "".join(f"\n- {each}" for each in differences)
    return SchemaError(
        f"{what} doesn't fit {terms.file}, the contract of {name}:{listed}",
        hint=f"Fix the data, or change the contract. To see the table's columns: lakegate table show {name}",
        table=str(name),
        file=terms.file,
        differences=list(differences),
    )


def _require_distinct(transforms: Sequence[PartitionTransform], texts: Sequence[str]) -> None:
    # Iceberg refuses two transforms of the same kind on a column, and all time transforms are of the same kind.
    known: dict[tuple[str, str], str] = {}
    for transform, text in zip(transforms, texts, strict=True):
        kind = "time" if transform.name in _TIME_TRANSFORMS else transform.name
        key = (kind, transform.column.lower())
        if key in known:
            raise InputError(
                f"Can't partition by both {known[key]} and {text}. One of them is enough.",
                hint="Name each column once. Of years, months, days and hours, keep the finest.",
                column=transform.column,
            )
        known[key] = text
