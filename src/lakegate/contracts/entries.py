"""Reads a contract's entries for checks: a name, a name with arguments, or a check's text."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from lakegate.checks.definition import CheckDefinition
from lakegate.checks.parse import parse_checks
from lakegate.checks.registry import find_check, known_checks
from lakegate.contracts.document import Mark, Node
from lakegate.errors import CheckError
from lakegate.model.checks import Check

_SCOPE = "scope"
_COLUMNS = "columns"


class EntryError(Exception):
    """An entry isn't a valid check: where, why, and how to fix it."""

    def __init__(self, mark: Mark, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.mark, self.problem, self.hint = mark, problem, hint


def read_entry(entry: Node, column: str | None = None, *, owner: str | None = None) -> tuple[Check, ...]:
    """Return the checks for one entry.

    Args:
        entry: The entry. ``not_null``; ``in_range: {min: 0}``; ``accepted_values: [1, 2]`` (the first argument);
            ``unique: [a, b]`` (columns, among the table's checks); ``in_range(fare, 0, 500)``.
        column: The column that it's listed under; ``None`` for the table's own checks.
        owner: Owner of checks that name none.

    Raises:
        EntryError: If it isn't a check.
    """
    try:
        checks = _read(entry, column)
    except CheckError as error:
        raise EntryError(_mark_of_argument(entry, error.message), error.message, error.hint) from None
    return tuple(one if one.owner is not None else one.model_copy(update={"owner": owner}) for one in checks)


def _read(entry: Node, column: str | None) -> tuple[Check, ...]:
    if isinstance(entry.value, str):
        if "(" in entry.value:
            return parse_checks(entry.value)
        return _make_checks(entry, find_check(entry.value.strip()), Node(None, entry.mark), column)
    if not entry.mapping:
        raise EntryError(
            entry.mark,
            f"{_shown(entry.value)} isn't a check.",
            "Write a check's name, or its name, a colon and its arguments: in_range: {min: 0}",
        )
    (name, arguments), *more = entry.mapping.items()
    if more:
        second = more[0][0]
        raise EntryError(
            entry.keys[second],
            f"'{second}' is beside the check '{name}'.",
            f"Indent it further if it's an argument of {name}; start it with '- ' if it's another check."
            if name in known_checks()
            else "Write one check per entry: its name, a colon and its arguments.",
        )
    return _make_checks(entry, find_check(name), arguments, column)


def _make_checks(
    entry: Node, definition: CheckDefinition[Any], arguments: Node, column: str | None
) -> tuple[Check, ...]:
    if column is not None and not definition.columns:
        raise EntryError(
            entry.mark,
            f"{definition.name} isn't about one column.",
            "Move it to the list 'checks' of the table, at the outermost level.",
        )
    positional: list[Any] = [] if column is None else [column]
    keywords: dict[str, Any] = {}
    value = arguments.plain()
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        keywords = value
        _require_yaml_values(definition, arguments)
        key = _key_of_columns(definition, arguments, column)
        if key is not None:
            given = keywords.pop(key)
            positional += given if isinstance(given, list) else [given]
    elif value is not None and column is None and definition.columns:
        _require_names(arguments)
        positional += values
    elif value is not None:
        first = next(own_parameters(definition), None)
        if first is None or (isinstance(value, list) and not _takes_list(first.annotation)):
            positional += values
        else:
            keywords = {first.name: value}
    return definition.make(positional, keywords)


def _key_of_columns(definition: CheckDefinition[Any], arguments: Node, column: str | None) -> str | None:
    """Return the argument that names the check's columns, if any."""
    keys = [key for key in (_COLUMNS, *definition.columns[:1]) if definition.columns and key in arguments.mapping]
    if not keys:
        return None
    if column is not None:
        raise EntryError(
            arguments.keys[keys[0]],
            f"{definition.name} is listed under column '{column}', but names columns itself.",
            "Move it to the list 'checks' of the table, at the outermost level.",
        )
    if _COLUMNS in keys and len(keys) > 1:
        raise EntryError(
            arguments.keys[keys[1]],
            f"{definition.name}: '{_COLUMNS}' and '{keys[1]}' both name its columns.",
            "Give one of them.",
        )
    return keys[0]


def _require_yaml_values(definition: CheckDefinition[Any], arguments: Node) -> None:
    """Refuse values that a contract can't mean: ``true`` as a column's name, an empty value, a single tag."""
    for key, node in arguments.mapping.items():
        if definition.names_columns(key) or (key == _COLUMNS and definition.columns):
            _require_names(node)
        elif node.value is None and not definition.may_be_none(key):
            raise EntryError(
                arguments.keys[key], f"{definition.name}: '{key}' has no value.", "Write one, or leave it out."
            )
        elif key == "tags" and key not in definition.parameters and not isinstance(node.value, list):
            raise EntryError(node.mark, f"{definition.name}: 'tags' must be a list, not {_shown(node.value)}.")


def _require_names(node: Node) -> None:
    for one in node.items or [node]:
        if not isinstance(one.value, str):
            hint = f'Put the name in quotes: "{one.text}".' if one.text else "Write the column's name."
            raise EntryError(one.mark, f"{_shown(one.value)} isn't a column's name.", hint)


def own_parameters(definition: CheckDefinition[Any]) -> Iterator[inspect.Parameter]:
    """Yield a check's parameters that are neither columns of the table nor common to all checks, in order."""
    for one in definition.parameters.values():
        if one.name not in definition.columns and one.name != _SCOPE and one.kind is not one.VAR_POSITIONAL:
            yield one


def _takes_list(annotation: Any) -> bool:
    is_list = get_origin(annotation) in (list, Sequence) or annotation in (list, Sequence)
    return is_list or any(map(_takes_list, get_args(annotation)))


def _mark_of_argument(entry: Node, message: str) -> Mark:
    """Return where the argument that a message names is written, else where the entry is."""
    for arguments in entry.mapping.values():
        for key, mark in arguments.keys.items():
            if f"'{key}'" in message or f"{key}=" in message:
                return mark
    return entry.mark


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "an empty entry" if value in (None, {}) else repr(value)
