"""Names of tables, references and runs: validated once, and quoted for Spark SQL."""

from __future__ import annotations

import re
from typing import Any

from pydantic import field_validator, model_serializer, model_validator

from lakegate.errors import IdentifierError
from lakegate.model.base import Value

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT_OR_NAME = re.compile(r"'(?:\\.|[^'\\])*'|(?<!`)`([a-z_][a-z0-9_]*)`(?!`)", re.DOTALL)
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
REF_NAME = re.compile(r"(?!(?i:head|detached)\Z)[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
"""Nessie's ``Validation.REF_NAME_PATTERN``, without the names that it reserves in any case."""
_HASH = re.compile(r"[0-9a-f]{16,64}")
_RUN_ID = re.compile(r"[A-Za-z0-9](?:(?:(?!\.\.)[A-Za-z0-9._-]){0,98}[A-Za-z0-9])?")
_ORCHESTRATOR = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_MAX_REF_LENGTH = 200

RESERVED_NAMESPACES = frozenset({"global_temp", "lakegate", "session", "spark_catalog", "system"})
"""Top-level names that Spark SQL takes for catalogs or its own databases, not for namespaces of the lake."""


def quote(name: str) -> str:
    """Return one identifier, quoted for Spark SQL.

    Example:
        >>> quote("odd`name")
        '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def sql_name(name: str) -> str:
    """Return a table's or a column's name for SQL to show, quoted only if it must be.

    Example:
        >>> sql_name("nyc.trips"), sql_name("nyc.trips-2026")
        ('nyc.trips', 'nyc.`trips-2026`')
    """
    return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in name.split("."))


def plain_names(condition: str) -> str:
    """Return a condition for SQL to show, without backticks where none are needed.

    Example:
        >>> plain_names("`fare` < 0"), plain_names("`zone` NOT IN ('a', '`b`')")
        ('fare < 0', "zone NOT IN ('a', '`b`')")
    """
    if '"' in condition:
        return condition
    return _TEXT_OR_NAME.sub(lambda found: found[1] or found[0], condition)


def rows_query(table: str, condition: str = "", *, limit: int | None = None) -> str:
    """Return a query to show people, for the rows of a table.

    Example:
        >>> rows_query("nyc.trips", "fare IS NULL", limit=20)
        'SELECT * FROM nyc.trips WHERE fare IS NULL LIMIT 20'
    """
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT * FROM {sql_name(table)}{where}" + ("" if limit is None else f" LIMIT {limit}")  # noqa: S608 - shown, not run


def is_commit_hash(text: str) -> bool:
    """Return whether ``text`` looks like a catalog commit hash (16 to 64 hexadecimal digits).

    Example:
        >>> is_commit_hash("2e1cfa82b035c26c"), is_commit_hash("main")
        (True, False)
    """
    return _HASH.fullmatch(text) is not None


def validate_orchestrator(name: str) -> str:
    """Return ``name`` if it's a valid orchestrator name.

    Raises:
        IdentifierError: If it has characters other than lower-case letters, digits and ``-``, or is too long.

    Example:
        >>> validate_orchestrator("aws-lambda")
        'aws-lambda'
    """
    if not _ORCHESTRATOR.fullmatch(name):
        raise IdentifierError(
            f"Invalid orchestrator name '{name[:80]}'.",
            hint="Use lower-case letters, digits and '-', 40 characters at most.",
            orchestrator=name[:80],
        )
    return name


def validate_ref_name(name: str) -> str:
    """Return ``name`` if it's a valid name for a branch or tag.

    Raises:
        IdentifierError: If the catalog would refuse the name or could take it for a commit hash.

    Example:
        >>> validate_ref_name("wap/nyc.trips_01")
        'wap/nyc.trips_01'
    """
    if len(name) > _MAX_REF_LENGTH or not REF_NAME.fullmatch(name) or "//" in name or is_commit_hash(name):
        raise IdentifierError(
            f"'{name}' can't name a branch or tag.",
            hint="Start with a letter; use letters, digits, '.', '_', '-' and single '/'; end with a letter or digit; "
            f"at most {_MAX_REF_LENGTH} characters; it mustn't look like a commit hash, or be HEAD or DETACHED.",
            ref=name,
        )
    return name


def validate_run_id(run_id: str) -> str:
    """Return ``run_id`` if it's a valid run id. It becomes part of branch names and folders.

    Raises:
        IdentifierError: If it has anything but ASCII letters, digits, ``.``, ``_`` and ``-``, or is too long.

    Example:
        >>> validate_run_id("nyc.trips-2024-01-31")
        'nyc.trips-2024-01-31'
    """
    if not _RUN_ID.fullmatch(run_id):
        raise IdentifierError(
            f"'{run_id}' can't name a run.",
            hint="Use ASCII letters, digits, '.', '_' and '-', at most 100, a letter or digit at both ends.",
            run_id=run_id,
        )
    return run_id


class TableIdentifier(Value):
    """A table's name: one or more namespace levels and the table itself.

    In JSON it is its text, ``"nyc.trips"``.

    Example:
        >>> table = TableIdentifier.parse("nyc.trips")
        >>> table.namespace, table.name
        (('nyc',), 'trips')
        >>> table.sql("lakegate", ref="wap/x")
        '`lakegate`.`nyc`.`trips@wap/x`'
    """

    namespace: tuple[str, ...]
    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            *namespace, name = value.split(".")
            return {"namespace": tuple(namespace), "name": name}
        return value

    @field_validator("namespace")
    @classmethod
    def _validate_namespace(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise IdentifierError(
                "A table needs a namespace.", hint="Write it as namespace.table, for example nyc.trips."
            )
        return tuple(_validate_part(part) for part in value)

    @field_validator("name")
    @classmethod
    def _validate_name(cls, value: str) -> str:
        return _validate_part(value)

    @model_serializer
    def _to_text(self) -> str:
        return str(self)

    @classmethod
    def parse(cls, text: str) -> TableIdentifier:
        """Parse ``namespace.table`` as users type it. There may be more namespace levels.

        Raises:
            IdentifierError: If a part is empty or has anything but ASCII letters, digits, ``_`` and ``-``, or the first
                level is one of :data:`RESERVED_NAMESPACES`, where no query would find the table.
        """
        *namespace, name = text.split(".")
        try:
            table = cls(namespace=tuple(namespace), name=name)
        except IdentifierError as error:
            message = f"'{text}' can't name a table: {error.message}"
            raise IdentifierError(message, hint=error.hint, table=text) from None
        if table.namespace[0].lower() in RESERVED_NAMESPACES:
            raise IdentifierError(
                f"'{text}' can't name a table: in Spark SQL '{table.namespace[0]}' isn't a namespace of the lake.",
                hint=f"Use another namespace; reserved are {', '.join(sorted(RESERVED_NAMESPACES))}.",
                table=text,
            )
        return table

    @classmethod
    def stored(cls, text: str) -> TableIdentifier:
        """Parse an existing table's name from a commit or the journal. It may have been reserved since.

        Example:
            >>> TableIdentifier.stored("system.trips").parts
            ('system', 'trips')
        """
        return cls.model_validate(text)

    @property
    def parts(self) -> tuple[str, ...]:
        """All levels, ending with the table's name."""
        return (*self.namespace, self.name)

    def sql(self, catalog: str, *, ref: str | None = None) -> str:
        """Return the quoted name for Spark SQL.

        Args:
            ref: Branch or tag; ``None`` for the catalog's default. Nessie's Spark catalog reads ``table@ref``.
        """
        name = self.name if ref is None else f"{self.name}@{ref}"
        return ".".join(quote(part) for part in (catalog, *self.namespace, name))

    def __str__(self) -> str:
        return ".".join(self.parts)


def _validate_part(part: str) -> str:
    if _PART.fullmatch(part):
        return part
    raise IdentifierError(
        f"'{part}' isn't a plain name." if part else "a part of the name is empty.",
        hint="Use namespace.table with ASCII letters, digits, '_' and '-', each part starting with a letter or '_' "
        "(at most 128 characters a part).",
    )
