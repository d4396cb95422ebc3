"""A contract during translation from another format, and a list of what couldn't be translated."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakegate.checks.registry import find_check
from lakegate.contracts.document import Mark, Node, as_yaml, comment
from lakegate.contracts.model import SQL_TYPES, VERSION, column_type
from lakegate.errors import CheckError
from lakegate.model.checks import Check


class NoCheckError(Exception):
    """No check says what a rule or test of another format says; the message says why."""


@dataclass(frozen=True, slots=True)
class Untranslated:
    """Something that the contract lacks, or says differently.

    Attributes:
        what: The key, check or property.
        why: Why it's missing, or how it differs.
        is_check: Whether data that the other format refuses may pass, so that it must be seen.
    """

    line: int
    what: str
    why: str
    is_check: bool

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}: {self.why}"


@dataclass(slots=True)
class DraftColumn:
    """A column, translated as far as possible."""

    name: str
    type: str | None = None
    required: bool = False
    description: str | None = None
    tags: tuple[str, ...] = ()
    checks: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """One table of a file in another format.

    Attributes:
        untranslated: What the contract lacks or says differently.
    """

    table: str
    line: int
    description: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    freshness: str | None = None
    partition_by: tuple[str, ...] = ()
    columns: list[DraftColumn] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    untranslated: list[Untranslated] = field(default_factory=list)

    def column(self, mark: Mark, name: str) -> DraftColumn:
        """Return the column of this name: a new one, or the one that the file has listed before."""
        found = next((one for one in self.columns if one.name.lower() == name.lower()), None)
        if found is not None:
            self.note(mark, f"column {name}", "it's listed twice; this entry only adds to the first")
            return found
        self.columns.append(DraftColumn(name))
        return self.columns[-1]

    def lose(self, mark: Mark, what: str, why: str) -> None:
        """Note that a check can't be translated, or not exactly."""
        self.untranslated.append(Untranslated(mark.line, what, why, is_check=True))

    def note(self, mark: Mark, what: str, why: str) -> None:
        """Note that something else than a check can't be translated."""
        self.untranslated.append(Untranslated(mark.line, what, why, is_check=False))

    def note_unknown_keys(self, node: Node, known_keys: Collection[str], *, prefix: str = "") -> None:
        """Note the keys of a mapping that aren't translated."""
        for key, mark in node.keys.items():
            if key not in known_keys:
                self.note(mark, f"{prefix}{key}", "lakegate has no such key")

    def listed(self, node: Node, key: str) -> list[Node]:
        """Return the items of the list at ``key``, and note anything else there as lost."""
        found = node.get(key)
        if found is not None and not isinstance(found.value, list):
            self.lose(node.keys[key], key, "it isn't a list")
        return [] if found is None else found.items

    def add(self, mark: Mark, what: str, kind: str, columns: Sequence[str], arguments: Mapping[str, Any]) -> None:
        """Add a check of ``columns``, or note why it's impossible.

        Args:
            columns: Its columns. A check of one column goes into that column's list.
            arguments: Its arguments and options, without those that are ``None``.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        if isinstance(given.get("values"), list):
            type_ = next((one.type for one in self.columns if tuple(columns) == (one.name,)), None)
            given["values"] = [_as_column_type(type_, one) for one in given["values"]]
        try:
            definition = find_check(kind)
            if definition.name == "unique":
                given.setdefault("scope", "table")  # other formats mean the whole table
            checks = definition.make(tuple(columns), given)
        except CheckError as error:
            self.lose(mark, what, error.message)
            return
        for check in checks:
            listed = next((one for one in self.columns if check.columns == (one.name,)), None)
            known = self.checks if listed is None or not find_check(check.kind).columns else listed.checks
            if check not in known:
                known.append(check)

    def text(self, source: str) -> str:
        """Return the contract as YAML.

        Args:
            source: The original file, for the comment at the top.
        """
        table = {
            "version": VERSION,
            "table": self.table,
            "description": self.description,
            "owner": self.owner,
            "freshness": self.freshness,
            "tags": list(self.tags),
            "partition_by": list(self.partition_by),
        }
        contract = {**_without_blanks(table), "columns": [_column(column) for column in self.columns]}
        if self.checks:
            contract["checks"] = [entry_of(check, in_column=False) for check in self.checks]
        comments = [f"# Translated from {comment(source)}, line {self.line}."]
        if self.untranslated:
            comments += ["# Not translated:", *(f"# - {comment(note)}" for note in sorted_notes(self.untranslated))]
        return "\n".join([*comments, as_yaml(contract, flow=None)])


def sorted_notes(untranslated: Iterable[Untranslated]) -> list[str]:
    """Return what wasn't translated in the file's order, each once."""
    return list(dict.fromkeys(map(str, sorted(untranslated, key=lambda one: one.line))))


def _column(column: DraftColumn) -> dict[str, Any]:
    return _without_blanks(
        {
            "name": column.name,
            "type": column.type,
            "description": column.description,
            "tags": list(column.tags),
            "required": column.required or None,
            "checks": [entry_of(check, in_column=True) for check in column.checks],
        }
    )


def _without_blanks(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != []}


def entry_of(check: Check, *, in_column: bool) -> str | dict[str, Any]:
    """Return a check as an entry of a contract's list: its name, or its name with its arguments."""
    definition = find_check(check.kind)
    # A check without column parameters finds its columns in its arguments.
    columns = {"columns": list(check.columns)} if definition.columns and not in_column else {}
    arguments = {**columns, **check.arguments, **definition.options_of(check)}
    return {check.kind: arguments} if arguments else check.kind


_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_CALL = re.compile(r"([a-z_ 0-9]+?)\s*\((.*)\)")


def sql_type(text: str) -> str | None:
    """Return the Iceberg type for a database's type; ``None`` if it's unknown.

    Example:
        >>> sql_type("VARCHAR(18)"), sql_type("numeric(10,2)"), sql_type("geography")
        ('string', 'decimal(10, 2)', None)
    """
    plain = " ".join(text.lower().split())
    call = _CALL.fullmatch(plain)
    name, arguments = (call[1].strip(), call[2]) if call else (plain, "")
    if name in ("decimal", "numeric", "number", "dec"):
        numbers = arguments.split(",") if arguments else []
        digits = ", ".join(one.strip() for one in (*numbers, "0")[:2]) if numbers else "38, 9"
        return _iceberg_type(f"decimal({digits})")
    return SQL_TYPES.get(name) or _iceberg_type(text)


def _as_column_type(type_: str | None, value: Any) -> Any:
    """Convert a listed value to the column's type: dbt and ODCS don't distinguish ``1`` from ``'1'``."""
    if type_ == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if type_ in ("int", "long") and isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if type_ in ("float", "double") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    if type_ == "boolean" and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def _iceberg_type(text: str) -> str | None:
    try:
        return column_type(text)
    except ValueError:
        return None


def text_of(node: Node | None) -> str | None:
    """Return a node's text on one line; ``None`` if it has none."""
    return None if node is None else one_line_of(node.value)


def one_line_of(value: object) -> str | None:
    """Return a text on one line; ``None`` for anything else, and for blanks."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def words_of(node: Node | None) -> tuple[str, ...]:
    """Return a list of texts; a single text becomes a list."""
    if node is None:
        return ()
    items = node.items or [node]
    return tuple(str(one.value) for one in items if isinstance(one.value, (str, int)) and str(one.value).strip())
