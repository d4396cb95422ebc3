"""The fields of a contract, as models that files are parsed into and the JSON Schema is generated from."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from lakegate.config import TableOptions
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.types import type_words
from lakegate.model.words import nearest, parse_duration

VERSION = 1
"""Of the format; a file of another version is refused."""
TYPES = (
    "boolean", "int", "long", "float", "double", "decimal(10, 2)", "date", "timestamp", "timestamptz", "string",
    "binary", "uuid", "fixed[16]", "time", "list<string>", "map<string, long>", "struct<a: int>",
)  # fmt: skip
"""Iceberg's types, for hints and completion."""
_WORDS = frozenset(re.findall(r"^[a-z]+", "\n".join(TYPES), re.MULTILINE))
SQL_TYPES = {
    "boolean": "boolean", "bool": "boolean", "int": "int", "integer": "int", "int4": "int", "int32": "int",
    "smallint": "int", "tinyint": "int", "int2": "int", "bigint": "long", "long": "long", "int8": "long",
    "int64": "long", "float": "double", "float8": "double", "float64": "double", "double": "double",
    "double precision": "double", "real": "float", "float4": "float", "date": "date", "timestamp_ntz": "timestamp",
    "timestamp without time zone": "timestamp", "datetime": "timestamp", "timestamp": "timestamp",
    "timestamptz": "timestamptz", "timestamp_ltz": "timestamptz", "timestamp_tz": "timestamptz",
    "timestamp with time zone": "timestamptz", "string": "string", "text": "string", "varchar": "string",
    "char": "string", "character varying": "string", "character": "string", "nvarchar": "string", "uuid": "string",
    "binary": "binary", "varbinary": "binary", "bytes": "binary", "bytea": "binary", "smallserial": "int",
    "serial": "int", "bigserial": "long",
}  # fmt: skip
"""Databases' types and Iceberg's for them."""
_SYNONYMS = {
    **SQL_TYPES, "str": "string", "float32": "float", "number": "decimal(38, 0)", "numeric": "decimal(38, 0)",
    "array": "list<string>", "object": "struct<a: int>",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[\d+\]")
_NESTED = re.compile(r"(?:list|map|struct)<.+>")
_MAX_PRECISION = 38


def column_type(text: str) -> str:
    """Return an Iceberg type in its canonical spelling.

    Raises:
        ValueError: If it isn't a type; the message suggests the nearest one.

    Example:
        >>> column_type("decimal(10,2)")
        'decimal(10, 2)'
    """
    text = text.strip()
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not (0 < precision <= _MAX_PRECISION and scale <= precision):
            raise ValueError(f"'{text}' isn't possible: a decimal has 1 to {_MAX_PRECISION} digits")
        return f"decimal({precision}, {scale})"
    if text in _WORDS - {"decimal", "fixed", "list", "map", "struct"} or _FIXED.fullmatch(text):
        return text
    spaced = re.sub(r"\s*([,:])\s*", r"\1 ", text)
    if _NESTED.fullmatch(text) and type_words(spaced) <= _WORDS:
        return spaced
    guess = _SYNONYMS.get(text.lower()) or nearest(text, TYPES)
    also = f"; did you mean '{guess}'?" if guess else ""
    raise ValueError(f"'{text}' isn't a type of Iceberg{also}")


def _table(text: str) -> str:
    try:
        return str(TableIdentifier.parse(text))
    except LakegateError as error:
        raise ValueError(error.message.removesuffix(".")) from None


def _interval(text: str) -> str:
    try:
        if parse_duration(text):
            return text
    except LakegateError as error:
        raise ValueError(f"{error.message} {error.hint}") from None
    raise ValueError("must be longer than zero")


ColumnTypeText = Annotated[str, AfterValidator(column_type), Field(json_schema_extra={"examples": list(TYPES)})]


class ContractColumn(Value):
    """A column of the table."""

    name: str = Field(min_length=1)
    """Its name."""
    type: ColumnTypeText | None = None
    """Its type, in Iceberg's words: ``long``, ``decimal(10, 2)``, ``timestamp``, ``list<string>``. Default: any."""
    was: tuple[str, ...] = ()
    """Names that the files have for it, if others, such as those from before it was renamed."""
    required: bool = False
    """Whether NULL fails the audit."""
    description: str | None = None
    """What it holds."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    checks: tuple[Any, ...] = ()
    """Checks of this column: ``not_null``, ``in_range: {min: 0}``; those of several columns go to the table's."""


class Contract(TableOptions):
    """What one table must look like, and how it's loaded."""

    version: Literal[1]
    """The format's version: 1."""
    table: Annotated[str, AfterValidator(_table)]
    """The table: ``namespace.table``. The file has its name."""
    description: str | None = None
    """What a row is, and where the data comes from."""
    owner: str | None = None
    """Who looks after the table. Checks without an owner of their own have this one."""
    tags: tuple[str, ...] = ()
    """Words to find the contract by."""
    freshness: Annotated[str, AfterValidator(_interval)] | None = None
    """How often something should be published to the table, such as ``1d``; ``lakegate notify late`` reports it."""
    extra_columns: Literal["allow", "refuse"] = "allow"
    """Whether the table may have columns that aren't listed."""
    columns: tuple[ContractColumn, ...] = ()
    """The columns that the table must have, in any order."""
    checks: tuple[Any, ...] = ()
    """Checks of several columns or of the batch: ``row_count: {min: 1}``, ``unique: {columns: [a, b]}``."""
