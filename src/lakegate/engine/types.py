"""Spark's types in Iceberg's words, as Iceberg's own ``SparkSchemaUtil`` maps them."""

from __future__ import annotations

from typing import Any

from lakegate.errors import SchemaError
from lakegate.model.schema import Column, Schema

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
_SPARK_NAMES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}


def iceberg_schema(struct: Any) -> Schema:
    """Return a Spark ``StructType`` as a schema in Iceberg types.

    Raises:
        SchemaError: When a column's type has no counterpart in Iceberg.
    """
    return Schema(
        columns=tuple(
            Column(name=field.name, type=_iceberg_type(field.dataType, field.name), required=not field.nullable)
            for field in struct.fields
        )
    )


def spark_type(iceberg_type: str) -> str | None:
    """Return the Spark SQL name of a primitive Iceberg type; ``None`` for nested ones.

    Example:
        >>> spark_type("timestamp"), spark_type("decimal(10, 2)"), spark_type("list<int>")
        ('timestamp_ntz', 'decimal(10, 2)', None)
    """
    return iceberg_type if iceberg_type.startswith("decimal(") else _SPARK_NAMES.get(iceberg_type)


def _iceberg_type(spark: Any, column: str) -> str:
    kind = spark.typeName()
    if kind == "array":
        return f"list<{_iceberg_type(spark.elementType, column)}>"
    if kind == "map":
        return f"map<{_iceberg_type(spark.keyType, column)}, {_iceberg_type(spark.valueType, column)}>"
    if kind == "struct":
        fields = (f"{field.name}: {_iceberg_type(field.dataType, column)}" for field in spark.fields)
        return f"struct<{', '.join(fields)}>"
    if kind == "decimal":
        return f"decimal({spark.precision}, {spark.scale})"
    name = _PRIMITIVES.get(spark.simpleString())
    if name is None:
        raise SchemaError(
            f"Column '{column}' has type {spark.simpleString()}, which an Iceberg table cannot hold.",
            hint="Convert or drop the column before ingesting the file.",
            column=column,
        )
    return name
