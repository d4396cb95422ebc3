"""Read source files as Spark DataFrames, in the types they will be written with.

Spark's types are mapped to Iceberg's like in Iceberg's own ``SparkSchemaUtil``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any
from urllib.parse import unquote

from lakegate.errors import SchemaError
from lakegate.model.batch import (
    LONE_DIGIT,
    MISSING_WORDS,
    NON_FINITE,
    Batch,
    CsvOptions,
    SourceColumn,
    time_rewrite,
)
from lakegate.model.identifiers import quote
from lakegate.model.schema import FILE_COLUMN, POSITION_COLUMN, Column, Schema, merged
from lakegate.model.sqltext import sql_string
from lakegate.model.types import (
    UNKNOWN,
    find_part,
    is_lossless,
    struct_text,
    type_differences,
    type_parts,
    unknown_as_string,
)
from lakegate.spark.failures import LOSES, MAY_ROUND, SKIPPED_TIME

_PRIMITIVES = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_SPARK_NAMES = {iceberg: spark for spark, iceberg in _PRIMITIVES.items()}  # of the integers, "int" comes last
_ARROW_TO_SPARK = {
    "bool": "boolean",
    "string": "string",
    "int64": "bigint",
    "double": "double",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
}
_WRITTEN = {**_PRIMITIVES, "void": UNKNOWN, "variant": "variant"}
"""Types of rows to write. A variant, or a field without values, doesn't exempt a struct from checks for lossy casts."""
_WHOLE, _FRACTIONS = frozenset({"int", "long"}), frozenset({"float", "double"})
_TIMES = frozenset({"date", "timestamp", "timestamptz"})
_MAY_OVERFLOW = ("double", "float")
_INFINITE = "CAST('Infinity' AS DOUBLE)"
_DECIMAL = re.compile(r"decimal\(\d+, (\d+)\)")
_EXACT_DOUBLES = 2**53
"""A double holds all integers up to this one."""
_EXACT = {"double": _EXACT_DOUBLES, "float": 2**24}
_TYPE_PART = re.compile(r"(?P<name>(?:`(?:[^`]|``)*`|\w+): )|(?P<word>[a-z]+)(?:\[\d+\])?")
_AS_READ = {"list": "array", "uuid": "string", "fixed": "binary"}
"""What Spark makes of Iceberg types that it doesn't have, or calls otherwise."""
_GLOB_CHARACTERS = frozenset("*?[]{}\\")
_WITH_ZONE = "[ T][0-9:.]+(Z|[+-][0-9:]+)$"
_POINT_ZERO = r"\.0*$"
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}
_COLON_OPTIONS = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}


def read_batch(session: Any, batch: Batch) -> tuple[Any, Schema]:
    """Read a batch as a DataFrame in its own columns and types; return it with its schema."""
    read = [_read_part(session, part) for part in batch.parts()]
    if len(read) == 1:
        return read[0]
    schema = merged(schema for _, schema in read)
    frames = [cast_to(schema, frame, own) for frame, own in read]
    return reduce(lambda one, other: one.unionByName(other), frames), schema


def cast_to(wanted: Schema, frame: Any, source: Schema, timezone: str | None = None) -> Any:
    """Return ``frame`` in the columns of ``wanted``, matched by name, in its order. Missing columns are NULL.

    Args:
        timezone: The zone of times without one that become times with one.
    """
    return frame.selectExpr(*(_cast(column, source, timezone) for column in wanted.columns))


def with_fields(frame: Any, table: Any, *, fills: bool) -> Any:
    """Cast ``frame`` to the types of ``table`` where Spark would change values on writing. Struct fields match by name.

    A value that the table's type can't hold exactly then fails on writing instead of being rounded. Columns that Spark
    refuses to write, or converts without loss, stay as they are.

    Args:
        fills: Fill struct fields that ``frame`` lacks with NULL.
    """
    wanted = {field.name.lower(): field.dataType for field in table.schema.fields}
    columns = []
    for field in frame.schema.fields:
        name, kind = quote(field.name), wanted.get(field.name.lower())
        with suppress(SchemaError):  # Iceberg doesn't have the type
            if kind is not None and field.dataType != kind:
                own, there = (_iceberg_type(one, field.name, _WRITTEN) for one in (field.dataType, kind))
                if own != there and _is_rebuilt(own, there, fills=fills):
                    name = f"{_as_type(name, own, there, field.name)} AS {name}"
        columns.append(name)
    return frame.selectExpr(*columns)


def _is_rebuilt(own: str, there: str, *, fills: bool) -> bool:
    """Return whether :func:`with_fields`, rather than Spark, casts a column of type ``own`` to the type ``there``."""
    differences = list(_differing_parts(own, there))
    pairs = [(one, other) for one, other in differences if one is not None]
    lacks = len(pairs) < len(differences)
    if not all(other is not None and _goes_into(one, other) for one, other in pairs):
        return False
    return fills if lacks else (fills and bool(type_parts(own))) or any(_may_lose(*pair) for pair in pairs)


def _differing_parts(own: str, there: str) -> Iterator[tuple[str | None, str | None]]:
    """Yield the types of the parts that differ; ``None`` for a field that one side lacks."""
    for found in type_differences(own, there):
        if found.one is None or found.other is None or not all(map(_is_map, (found.one, found.other))):
            yield found.one, found.other
            continue
        for (_, one), (_, other) in zip(type_parts(found.one), type_parts(found.other), strict=True):
            yield from _differing_parts(one, other)


def _is_map(kind: str) -> bool:
    return kind.startswith("map<")


def _goes_into(source: str, wanted: str) -> bool:
    """Return whether Spark writes values of a type without parts as another (``Cast.canANSIStoreAssign``)."""
    if type_parts(source) or type_parts(wanted):
        return source == UNKNOWN
    is_same_kind = any(is_kind(source) and is_kind(wanted) for is_kind in (_is_number, _TIMES.__contains__))
    return is_lossless(source, wanted) or wanted == "string" or is_same_kind


def _is_number(kind: str) -> bool:
    return kind in _WHOLE | _FRACTIONS or _DECIMAL.fullmatch(kind) is not None


def _may_lose(source: str, wanted: str | None) -> bool:
    """Return whether Spark's cast on writing may silently change a value, as it does for numbers and times."""
    decimals = [_DECIMAL.fullmatch(one) for one in (source, wanted or "")]
    if all(decimals):
        one, other = (int(found[1]) for found in decimals if found)
        return one > other
    if wanted in _WHOLE:
        return source in _FRACTIONS or decimals[0] is not None
    if wanted in _FRACTIONS:
        return (source, wanted) == _MAY_OVERFLOW or (source in _WHOLE and not is_lossless(source, wanted))
    return (decimals[1] is not None and source in _FRACTIONS) or (
        wanted == "date" and source in {"timestamp", "timestamptz"}
    )


def _read_part(session: Any, batch: Batch) -> tuple[Any, Schema]:
    frame = _renamed(_read_parquet(session, batch), batch)
    return frame, source_schema(frame, batch)


def _renamed(frame: Any, batch: Batch) -> Any:
    names = {column.in_file.lower(): column.name for column in batch.columns if column.file_name is not None}
    if not names:
        return frame
    return frame.selectExpr(*(f"{quote(name)} AS {quote(names.get(name.lower(), name))}" for name in frame.columns))


def read_as(session: Any, batch: Batch, table: Schema, *, frame: Any, source: Schema) -> Any:
    """Read a batch as a DataFrame in the columns and types of ``table``. Missing columns are NULL.

    Text in CSV and JSON is parsed as the table's types, not converted from the inferred ones.

    Args:
        table: The columns to return, in this order.
        frame: The result of :func:`read_batch` for the batch.
        source: The schema of ``frame``.
    """
    if batch.format not in {"csv", "json"}:
        return cast_to(table, frame, source, batch.timezone)
    frames = (_read_text(session, part, table) for part in batch.parts())
    return reduce(lambda one, other: one.unionByName(other), frames)


def read_placed(session: Any, batch: Batch, table: Schema) -> Any:
    """Read a batch in the columns and types of ``table``, each row with the ``_file`` read and its position there."""
    frames = []
    for part in batch.parts():  # Spark knows the file directly above the scan, so not above a union
        frame, source = read_batch(session, part)
        rows = read_as(session, part, table, frame=frame, source=source)
        place = f"_metadata.file_path AS {FILE_COLUMN}", f"_metadata.row_index AS {POSITION_COLUMN}"
        frames.append(rows.selectExpr("*", *place))
    return reduce(lambda one, other: one.unionByName(other), frames)


def select_or_null(frame: Any, table: Schema, found: Mapping[str, str]) -> Any:
    """Return a DataFrame with the columns of ``table``, with NULL in those that ``frame`` lacks.

    Args:
        found: Names in ``frame``, keyed by those in ``table`` in lower case.
    """
    return frame.selectExpr(
        *(
            f"{quote(found[column.name.lower()])} AS {quote(column.name)}"
            if column.name.lower() in found
            else f"CAST(NULL AS {spark_ddl(column.type)}) AS {quote(column.name)}"
            for column in table.columns
        )
    )


def source_schema(frame: Any, batch: Batch) -> Schema:
    """Return the schema of a batch's DataFrame. Columns without any value have type ``unknown``."""
    schema = iceberg_schema(frame.schema)
    known = {one.name.lower(): UNKNOWN if one.type == "null" else one.inferred for one in batch.columns}
    return Schema(
        columns=tuple(
            column.model_copy(update={"type": known.get(column.name.lower()) or column.type})
            for column in schema.columns
        )
    )


def spark_path(uri: str) -> str:
    r"""Convert a file URI to a path for Spark, which treats every path as a glob and decodes nothing.

    Example:
        >>> spark_path("file:///data/a%20b/%5B1%5D.parquet")
        '/data/a b/\\[1\\].parquet'
    """
    path = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
    return "".join(f"\\{character}" if character in _GLOB_CHARACTERS else character for character in path)


def _reader(session: Any, batch: Batch) -> Any:
    # Hadoop's checksummed local file system can't read names with a colon; the raw one can.
    colon = any(":" in spark_path(uri) for uri in batch.read_uris if uri.startswith("file:"))
    return session.read.options(**_CHECKED, **(_COLON_OPTIONS if colon else {}))


def _read_parquet(session: Any, batch: Batch) -> Any:
    frame = _reader(session, batch).parquet(*map(spark_path, batch.read_uris))
    # In lower case, because the files of a batch may spell a name differently.
    converted = {column.in_file.lower(): _converted(column) for column in batch.columns}
    texts = {name.lower(): name for name in _texts(frame)} if batch.format in {"csv", "json"} else {}
    for column in batch.columns:
        text = texts.get(column.in_file.lower())
        if text is not None and column.type not in {"null", "string"}:
            converted[text.lower()] = _parsed(batch.csv or CsvOptions(), text, _spark_name(column.type))
    # One file may have integers or dates in a column, another fractions, timestamps or, in CSV, text.
    wider = {"double": {"bigint"}, "timestamp[us]": {"date"}} if batch.format in {"json", "excel"} else {}
    own = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    for column in batch.columns if batch.format in {"csv", "json", "excel"} else ():
        name, stored = quote(column.in_file), own.get(column.in_file.lower())
        is_typed = batch.format == "csv" and stored != "string" and column.type != "null"
        if is_typed or stored in wider.get(column.type, ()):
            converted[column.in_file.lower()] = f"CAST({name} AS {_spark_name(column.type)}) AS {name}"
    if not any(converted.values()):
        return frame
    return frame.selectExpr(*(converted.get(name.lower()) or quote(name) for name in frame.columns))


def _read_text(session: Any, batch: Batch, table: Schema) -> Any:
    """Read a part of the batch in the table's columns. Text for a column of another type is parsed as that type."""
    frame = _renamed(_reader(session, batch).parquet(*map(spark_path, batch.read_uris)), batch)
    texts = {name.lower() for name in _texts(frame)}
    expressions = []
    own = source_schema(frame, batch)
    for column in table.columns:
        target = spark_type(column.type)
        if column.name.lower() in texts and target is not None:
            # The table's name is the same as the file's, except for case.
            expressions.append(_parsed(batch.csv or CsvOptions(), column.name, target, batch.timezone))
        else:
            expressions.append(_cast(column, own, batch.timezone))
    return frame.selectExpr(*expressions)


def _texts(frame: Any) -> list[str]:
    return [field.name for field in frame.schema.fields if field.dataType.typeName() == "string"]


def _converted(column: SourceColumn) -> str | None:
    name = quote(column.in_file)
    if column.type == "null":
        return f"CAST(NULL AS STRING) AS {name}"
    if column.inferred is not None and column.inferred != unknown_as_string(column.inferred):
        return f"{_as_type(name, column.inferred, unknown_as_string(column.inferred), column.in_file)} AS {name}"
    if not column.type.startswith("timestamp[ns"):
        return None
    # Spark returns nanoseconds as numbers. Round down, also before 1970.
    micros = f"timestamp_micros({name} DIV 1000 - IF({name} % 1000 < 0, 1, 0))"
    return f"{micros} AS {name}" if "tz=" in column.type else f"CAST({micros} AS TIMESTAMP_NTZ) AS {name}"


def _in_zone(value: str, column: str, timezone: str) -> str:
    """Return an expression for the instant of a time without a zone. It fails on times that the zone doesn't have."""
    zone, time = sql_string(timezone), f"CAST({value} AS TIMESTAMP)"  # in UTC, which the session's zone is
    instant = f"to_utc_timestamp({time}, {zone})"
    begin, end = sql_string(f"Column '{column}' holds "), sql_string(f", {SKIPPED_TIME} {timezone}.")
    failure = f"CAST(raise_error(concat({begin}, CAST({value} AS STRING), {end})) AS TIMESTAMP)"
    return f"IF(from_utc_timestamp({instant}, {zone}) <=> {time}, {instant}, {failure})"


def _cast(column: Column, source: Schema, timezone: str | None) -> str:
    name, found = quote(column.name), source.find(column.name)
    if found is not None and timezone and found.type in {"date", "timestamp"} and column.type == "timestamptz":
        return f"{_in_zone(quote(found.name), column.name, timezone)} AS {name}"
    if found is None or found.type == UNKNOWN:
        return f"CAST(NULL AS {spark_ddl(column.type)}) AS {name}"
    return f"{_as_type(quote(found.name), found.type, column.type, column.name)} AS {name}"


def _as_type(value: str, source: str, wanted: str, column: str) -> str:
    """Return an expression that casts a value. Struct fields match by name, and missing ones are NULL."""
    if source == wanted:
        return value
    own, parts, depth = type_parts(source), type_parts(wanted), column.count(".")
    if source == UNKNOWN:
        return f"CAST(NULL AS {spark_ddl(wanted)})"
    if not own or not parts:
        return _as_plain(value, source, wanted, column)
    if wanted.startswith("list<"):
        inner = _as_type(f"e{depth}", own[0][1], parts[0][1], f"{column}.element")
        return f"transform({value}, e{depth} -> {inner})"
    if wanted.startswith("map<"):
        inner = _as_type(f"v{depth}", own[1][1], parts[1][1], f"{column}.value")
        if own[0] != parts[0]:
            key = _as_type(f"k{depth}", own[0][1], parts[0][1], f"{column}.key")
            value = f"transform_keys({value}, (k{depth}, v{depth}) -> {key})"
        return f"transform_values({value}, (k{depth}, v{depth}) -> {inner})"
    fields = []
    for name, kind in parts:
        found = find_part(own, name)
        field = (
            f"CAST(NULL AS {spark_ddl(kind)})"
            if found is None
            else _as_type(f"{value}.{quote(found[0])}", found[1], kind, f"{column}.{name}")
        )
        fields += [sql_string(name), field]
    return f"IF({value} IS NULL, NULL, named_struct({', '.join(fields)}))"


def _as_plain(value: str, source: str, wanted: str, column: str) -> str:
    """Return SQL that casts ``value`` to a type without parts. It fails on values that the cast would change."""
    target = spark_type(wanted)
    if target is None:  # the text of a UUID is as Spark will read it again
        return f"lower({value})" if (source, wanted) == ("string", "uuid") else value
    if (source, wanted) == ("long", "double"):
        return f"CAST({_exact(value, column)} AS {target})"
    cast = f"CAST({value} AS {target})"
    if (source, wanted) == ("binary", "string"):
        fails = _losing(f"hex({value})", column, wanted)
        return f"CASE WHEN {value} IS NULL OR is_valid_utf8({cast}) THEN {cast} ELSE {fails} END"
    if not _may_lose(source, wanted):
        return cast
    is_same = f"{value} IS NULL OR CAST({cast} AS {spark_type(source)}) = {value}"
    if source in _FRACTIONS and wanted in _WHOLE:  # beyond this, what wrote it may have rounded it already
        is_same = f"{value} IS NULL OR (abs({value}) <= {_EXACT[source]} AND CAST({cast} AS {source}) = {value})"
    if (source, wanted) == _MAY_OVERFLOW:  # rounding to the nearest float is fine
        is_same = f"{value} IS NULL OR NOT {_overflows(cast, value)}"
    return f"CASE WHEN {is_same} THEN {cast} ELSE {_losing(value, column, wanted)} END"


def _losing(value: str, column: str, wanted: str) -> str:
    """Return SQL that fails because a value isn't one of the type ``wanted``."""
    begin, end = sql_string(f"Column '{column}' holds "), sql_string(f", which {wanted} {LOSES}.")
    return f"CAST(raise_error(concat({begin}, CAST({value} AS STRING), {end})) AS {spark_type(wanted)})"


def _overflows(cast: str, value: str) -> str:
    """Return SQL for whether a cast makes a finite number infinite."""
    return f"(abs({cast}) = {_INFINITE} AND abs({value}) < {_INFINITE})"


def _exact(value: str, column: str) -> str:
    """Return an expression for an integer that fails if a double may round it."""
    begin, end = sql_string(f"Column '{column}' holds "), sql_string(f", {MAY_ROUND}.")
    message = f"concat({begin}, {value}, {end})"
    is_inexact = f"{value} NOT BETWEEN -{_EXACT_DOUBLES} AND {_EXACT_DOUBLES}"
    return f"CASE WHEN {is_inexact} THEN CAST(raise_error({message}) AS BIGINT) ELSE {value} END"


def _parsed(csv: CsvOptions, column: str, target: str, timezone: str | None = None) -> str:
    """Return an expression that parses text as the Spark type ``target``."""
    name = quote(column)
    if target == "string":
        return name
    present = f"IF({name} IN ({', '.join(map(sql_string, MISSING_WORDS))}), NULL, {name})"
    text = _rewritten(present, target, csv)
    cast = f"CAST({text} AS {target})"
    if target == "timestamp" and timezone is not None:
        cast = f"IF({text} RLIKE {sql_string(_WITH_ZONE)}, {cast}, {_in_zone(text, column, timezone)})"
    return f"{_as_float(text, cast, column) if target == 'float' else cast} AS {name}"


def _as_float(text: str, cast: str, column: str) -> str:
    """Return ``cast``, but fail on whole numbers that a float would round, and on numbers too large for it."""
    is_rounded = f"TRY_CAST({cast} AS BIGINT) <> TRY_CAST({text} AS BIGINT)"
    overflows = _overflows(cast, f"CAST({text} AS DOUBLE)")
    return f"CASE WHEN {is_rounded} OR {overflows} THEN {_losing(text, column, 'float')} ELSE {cast} END"


def _rewritten(value: str, target: str, csv: CsvOptions) -> str:
    """Return an expression that rewrites a CSV value in SQL's notation, just like :mod:`lakegate.sources.csv_types`."""
    if target.startswith(("date", "timestamp")):
        forms = {"date-format": csv.date_format, "timestamp-format": csv.timestamp_format}
        for option, form in forms.items():
            if form is not None:
                rule = time_rewrite(form, option=option)
                pattern = sql_string(rule.pattern)
                made = f"regexp_replace({value}, {pattern}, {sql_string(rule.replacement('$'))})"
                made = f"regexp_replace({made}, {sql_string(LONE_DIGIT)}, '0$1')"
                value = f"IF({value} RLIKE {pattern}, {made}, {value})"
    elif csv.number is not None and target != "boolean":
        sign = f"IF({value} RLIKE '[-(]', '-', '')"
        digits = f"regexp_replace({value}, {sql_string(f'[^0-9+{csv.decimal}]')}, '')"
        made = f"replace(concat({sign}, {digits}), ',', '.')"
        # Text that doesn't match isn't a number, and must not become one.
        names = ", ".join(map(sql_string, NON_FINITE)) if target in {"double", "float"} else "NULL"
        other = f"IF({value} IN ({names}), {value}, {value} || ' x')" if csv.decimal == "," else value
        value = f"IF({value} RLIKE {sql_string(csv.number)}, {made}, {other})"
    if target in {"bigint", "int"}:  # whole numbers may be written like 6.0
        value = f"IF(contains({value}, '.'), regexp_replace({value}, {sql_string(_POINT_ZERO)}, ''), {value})"
    return value


def _spark_name(arrow_type: str) -> str:
    """Return the Spark type for an Arrow type that is inferred from text, or configured for it."""
    if arrow_type.startswith("decimal128("):
        return arrow_type.replace("decimal128", "decimal", 1)
    return _ARROW_TO_SPARK[arrow_type]


def iceberg_schema(struct: Any) -> Schema:
    """Convert a Spark ``StructType`` to a schema in Iceberg types."""
    return Schema(
        columns=tuple(
            Column(name=field.name, type=_iceberg_type(field.dataType, field.name), required=not field.nullable)
            for field in struct.fields
        )
    )


def spark_type(iceberg_type: str) -> str | None:
    """Return the Spark SQL name of a primitive Iceberg type; ``None`` for nested types.

    Example:
        >>> spark_type("timestamp"), spark_type("decimal(10, 2)"), spark_type("list<int>")
        ('timestamp_ntz', 'decimal(10, 2)', None)
    """
    return iceberg_type if iceberg_type.startswith("decimal(") else _SPARK_NAMES.get(iceberg_type)


def spark_ddl(iceberg_type: str) -> str:
    """Return the Spark SQL name of any Iceberg type, including nested ones.

    Example:
        >>> spark_ddl("list<struct<long: timestamp, `a b`: decimal(9, 2)>>")
        'array<struct<`long`: timestamp_ntz, `a b`: decimal(9, 2)>>'
        >>> spark_ddl("map<uuid, fixed[16]>")
        'map<string, binary>'
    """

    def named(match: re.Match[str]) -> str:
        if match["name"]:
            return match["name"] if match["name"].startswith("`") else f"`{match['name'][:-2]}`: "
        return _AS_READ.get(match["word"]) or _SPARK_NAMES.get(match["word"], match["word"])

    return _TYPE_PART.sub(named, unknown_as_string(iceberg_type))


def _iceberg_type(spark: Any, column: str, names: Mapping[str, str] = _PRIMITIVES) -> str:
    kind = spark.typeName()
    if kind == "array":
        return f"list<{_iceberg_type(spark.elementType, column, names)}>"
    if kind == "map":
        return f"map<{_iceberg_type(spark.keyType, column, names)}, {_iceberg_type(spark.valueType, column, names)}>"
    if kind == "struct":
        return struct_text((field.name, _iceberg_type(field.dataType, column, names)) for field in spark.fields)
    if kind == "decimal":
        return f"decimal({spark.precision}, {spark.scale})"
    name = names.get(spark.simpleString())
    if name is None:
        raise SchemaError(
            f"Column '{column}' has type {spark.simpleString()}, which Iceberg doesn't support.",
            hint="Convert or drop the column before ingesting the file.",
            column=column,
        )
    return name
