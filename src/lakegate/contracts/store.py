"""Finds and reads a project's contracts: the files ``contracts/NAMESPACE.TABLE.yaml``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from lakegate.checks.parse import parsed_checks
from lakegate.config import FILE_NAME, Settings, TableSettings, inner_models
from lakegate.contracts.document import Document, Mark, parse_document, read_document
from lakegate.contracts.model import VERSION, Contract, EntryError, read_entry
from lakegate.errors import ConfigurationError, IdentifierError, InputError, NotFoundError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import ContractTerms
from lakegate.model.schema import Column, PartitionTransform
from lakegate.model.words import did_you_mean, nearest

FOLDER = "contracts"
"""The folder of a project that holds its contracts."""
_SUFFIXES = (".yaml", ".yml")
_MOST_PROBLEMS = 20
_EXPECTED = {
    "string_type": "text", "bool_type": "true or false", "bool_parsing": "true or false", "tuple_type": "a list",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "int_type": "a whole number",
    "string_too_short": "longer",
}  # fmt: skip
"""What Pydantic's kinds of errors expect, in YAML's terms."""


def is_contract(path: Path) -> bool:
    """Return whether a file in the folder is a contract: it has a YAML extension, in any case, and isn't hidden."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


class Contracts:
    """The contracts of one project. Each is read on first use, and again if its file has changed.

    Args:
        settings: The project's settings, whose table sections are the short form of contracts.
    """

    def __init__(self, home: Path, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._read: dict[Path, tuple[tuple[int, int], LoadedContract]] = {}

    def find(self, table: TableIdentifier) -> LoadedContract | None:
        """Return a table's contract; ``None`` if it has none.

        Raises:
            ConfigurationError: If the file isn't a contract or names another table, the table also has a section in
                ``lakegate.toml``, or a file in the folder isn't named after a table.
        """
        path = self.files().get(table)
        return None if path is None else self._load(table, path)

    def named(self, given: str | Path) -> LoadedContract:
        """Return the contract in a file, or that of a table.

        Raises:
            NotFoundError: If the table has none.
            ConfigurationError: As for :meth:`find`.
            IdentifierError: If it's neither a ``.yaml`` file nor a table's name.
        """
        if Path(given).suffix.lower() in _SUFFIXES:
            return read_contract(Path(given))
        table = TableIdentifier.parse(str(given))
        found = self.find(table)
        if found is None:
            guess = did_you_mean(str(table), map(str, self.files()))
            raise NotFoundError(
                f"{table} has no contract in {self._home / FOLDER}.",
                hint=f"{guess}To propose one: lakegate check init FILES --table {table}",
                table=str(table),
            )
        return found

    def all(self) -> Mapping[TableIdentifier, LoadedContract]:
        """Return all contracts by table."""
        return {table: self._load(table, path) for table, path in self.files().items()}

    def require_counterpart(self, table: TableIdentifier, other: TableIdentifier) -> None:
        """Require that a renamed table's new name has a contract or section if the old name has one."""
        path, has_section = self.files().get(table), str(table) in self._settings.tables
        if (path is None and not has_section) or other in self.files() or str(other) in self._settings.tables:
            return
        source, hint = f'[tables."{table}"] in {FILE_NAME}', f'Copy the section to [tables."{other}"]'
        if path is not None:
            source, hint = (
                str(path),
                f"Copy it to {path.with_name(f'{other}{path.suffix}')}, with 'table: {other}' in it",
            )
        raise ConfigurationError(
            f"{table} can't be renamed yet: {source} has its settings, and {other} has no contract or section.",
            hint=f"{hint}; then rename the table, and remove the old one.",
            table=str(table),
        )

    def settings_of(self, table: TableIdentifier) -> TableSettings:
        """Return a table's settings, from its contract or section. A contract's checks aren't included."""
        contract = self.find(table)
        return self._settings.table(table) if contract is None else contract.settings

    def checks_of(self, table: TableIdentifier, added: Sequence[str | Check] = ()) -> tuple[Check, ...]:
        """Return the checks of a table's contract or section, and the ``added`` ones, each once."""
        contract = self.find(table)
        own = () if contract is None else contract.checks
        return parsed_checks((*own, *self._settings.table(table).checks, *added))

    def late(self) -> dict[str, str]:
        """Return how often tables should be published to, by ``notify.late`` and contracts' ``freshness``."""
        expected = dict(self._settings.notify.late)
        for table, loaded in self.all().items():
            every = loaded.contract.freshness
            if every is None:
                continue
            if str(table) in expected:
                raise ConfigurationError(
                    f"Both notify.late in {FILE_NAME} and {loaded.file} say how fresh {table} must be.",
                    hint="Remove one of them.",
                    table=str(table),
                    file=loaded.file,
                )
            expected[str(table)] = every
        return expected

    def files(self) -> dict[TableIdentifier, Path]:
        """Return the contracts' files by table, sorted by name."""
        folder = self._home / FOLDER
        try:
            paths = sorted(path for path in folder.iterdir() if is_contract(path))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise ConfigurationError(f"Can't read the folder {folder}: {error.strerror}.", file=str(folder)) from None
        found: dict[TableIdentifier, Path] = {}
        for path in paths:
            table = self._table_of(path)
            if table in found:
                raise ConfigurationError(
                    f"{table} has two contracts: {self._name(found[table])} and {self._name(path)}.",
                    hint="Remove one of them.",
                    table=str(table),
                )
            found[table] = path
        return found

    def _table_of(self, path: Path) -> TableIdentifier:
        try:
            return TableIdentifier.parse(path.stem)
        except IdentifierError as error:
            raise ConfigurationError(
                f"{self._name(path)} isn't named after a table, so no run would find it: {error.message}",
                hint=f"Rename it to {FOLDER}/NAMESPACE.TABLE.yaml, or move it out of {FOLDER}/.",
                file=str(path),
            ) from None

    def _load(self, table: TableIdentifier, path: Path) -> LoadedContract:
        name = self._name(path)
        if str(table) in self._settings.tables:
            raise ConfigurationError(
                f'{table} has both a section [tables."{table}"] in {FILE_NAME} and a contract, {name}.',
                hint="Move what the section says into the contract, and remove the section.",
                table=str(table),
                file=name,
            )
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
        except OSError:  # reading it says why
            version = (0, 0)
        known = self._read.get(path)
        if known is None or known[0] != version:
            loaded = read_contract(path, name=name)
            if loaded.table != table:
                raise ConfigurationError(
                    f"{name} is named after {table}, but says 'table: {loaded.table}'.",
                    hint=f"Rename it to {FOLDER}/{loaded.table}.yaml, or correct 'table'.",
                    file=name,
                )
            known = self._read[path] = (version, loaded)
        return known[1]

    def _name(self, path: Path) -> str:
        return f"{FOLDER}/{path.name}"


@dataclass(frozen=True)
class LoadedContract:
    """A contract that was read, and what follows from it.

    Attributes:
        checks: All its checks in the file's order, including ``not_null`` for required columns.
    """

    file: str
    contract: Contract
    checks: tuple[Check, ...]
    lines: tuple[int, ...]

    @property
    def table(self) -> TableIdentifier:
        """The table that it's about."""
        return TableIdentifier.parse(self.contract.table)

    @property
    def terms(self) -> ContractTerms:
        """What it says about the table's columns."""
        return ContractTerms(
            file=self.file,
            columns=tuple(Column(name=one.name, type=one.type or "") for one in self.contract.columns),
            extra_columns=self.contract.extra_columns == "allow",
        )

    @cached_property
    def settings(self) -> TableSettings:
        """The equivalent section of ``lakegate.toml``, without checks, which are values here."""
        shared = TableSettings.model_fields.keys() & Contract.model_fields.keys() - {"checks", "columns"}
        given = {name: getattr(self.contract, name) for name in shared & self.contract.model_fields_set}
        names = {old: column.name for column in self.contract.columns for old in column.was}
        return TableSettings(**given, columns=names)


def read_contract(path: Path, *, name: str | None = None) -> LoadedContract:
    """Read a contract's file.

    Args:
        name: Its name in messages. Default: its path.

    Raises:
        ConfigurationError: If it can't be read or isn't a contract. One error names all problems, with file, line and
            column.
    """
    return _load(read_document(path, name=name))


def parse_contract(text: str, *, name: str = "contract") -> LoadedContract:
    """Parse a contract's text.

    Example:
        >>> text = "{version: 1, table: nyc.trips, columns: [{name: id, required: true}]}"
        >>> [str(check) for check in parse_contract(text).checks]
        ['not_null(id)']
    """
    return _load(parse_document(text, name=name))


def _load(document: Document) -> LoadedContract:
    _require_lakegate_contract(document)
    try:
        # Strict, like the JSON Schema: 1 isn't true. As JSON, because strict Python input must have tuples, not lists.
        contract = Contract.model_validate_json(json.dumps(document.root.plain()), strict=True)
    except ValidationError as error:
        raise _combined(document, list(_problems(document, error))) from None
    checks: list[Check] = []
    lines: list[int] = []
    problems = list(_column_problems(document, contract))
    try:
        for mark, read in _checks(document, contract, problems):
            checks += read
            lines += [mark.line] * len(read)
    except RecursionError:
        raise document.error(Mark(1, 1), "a check is nested too deeply.") from None
    if problems:
        raise _combined(document, problems)
    return LoadedContract(document.name, contract, tuple(checks), tuple(lines))


def _require_lakegate_contract(document: Document) -> None:
    root = document.root
    if root.value is None:
        raise document.error(root.mark, "the file is empty.", hint="Begin with: lakegate check init TABLE")
    if not isinstance(root.value, dict):
        raise document.error(root.mark, "a contract is a mapping: 'version: 1', 'table: nyc.trips' …")
    foreign = root.keys.keys() & {"apiVersion", "models", "sources"}
    if foreign and "table" not in root.mapping:
        hint = f"To convert ODCS or dbt's properties: lakegate check import {document.name}"
        raise document.error(root.keys[min(foreign)], "this isn't a lakegate contract.", hint=hint)
    version = root.mapping.get("version")
    if version is None:
        raise document.error(root.mark, "'version' is missing.", hint=f"Write as the first line: version: {VERSION}")
    if version.value != VERSION or type(version.value) is not int:
        raise document.error(
            version.mark,
            f"this version of lakegate reads contracts of version {VERSION}, not {version.plain()!r}.",
            hint="Upgrade lakegate, if a newer one wrote the file.",
        )


def _checks(
    document: Document, contract: Contract, problems: list[EntryError]
) -> Iterator[tuple[Mark, tuple[Check, ...]]]:
    root = document.root
    for column, node in zip(contract.columns, root.items_of("columns"), strict=False):
        read: list[tuple[Mark, tuple[Check, ...]]] = []
        for entry in node.items_of("checks"):
            try:
                read.append((entry.mark, read_entry(entry, column.name, owner=contract.owner)))
            except EntryError as error:
                problems.append(error)
        is_written = any(_is_required_check(check, column.name) for _, checks in read for check in checks)
        if column.required and not is_written:
            yield node.keys["required"], (Check(kind="not_null", columns=(column.name,), owner=contract.owner),)
        yield from read
    for entry in root.items_of("checks"):
        try:
            yield entry.mark, read_entry(entry, owner=contract.owner)
        except EntryError as error:
            problems.append(error)


def _is_required_check(check: Check, column: str) -> bool:
    """Return whether a check is the one that ``required`` implies, perhaps with another severity."""
    return check.kind == "not_null" and check.columns == (column,) and check.where is None and check.tolerance is None


def _column_problems(document: Document, contract: Contract) -> Iterator[EntryError]:
    seen: set[str] = set()
    for index, column in enumerate(contract.columns):
        is_known = column.name.lower() in seen
        seen.add(column.name.lower())
        if is_known:
            _, mark = document.root.find(("columns", index, "name"))
            yield EntryError(mark, f"column '{column.name}' is listed twice.", "List each column once, in any case.")
    for index, text in enumerate(contract.partition_by):
        try:
            PartitionTransform.parse(text)
        except InputError as error:
            yield EntryError(document.root.find(("partition_by", index))[0].mark, error.message, error.hint)
    owners: dict[str, str] = {}
    for index, column in enumerate(contract.columns):
        for position, old in enumerate(column.was):
            owner = owners.setdefault(old.lower(), column.name)
            if owner != column.name:
                _, mark = document.root.find(("columns", index, "was", position))
                problem = f"'{old}' can't have been both '{owner}' and '{column.name}'."
                yield EntryError(mark, problem, "Leave it in 'was' of only one of them; case doesn't matter.")


def _problems(document: Document, error: ValidationError) -> Iterator[EntryError]:
    for problem in error.errors():
        path = problem["loc"]
        node, mark = document.root.find(path)
        if problem["type"] == "extra_forbidden":
            known = _known_keys(path[:-1])
            guess = nearest(str(path[-1]), known)
            also = f"; did you mean '{guess}'?" if guess else "."
            yield EntryError(mark, f"unknown key '{path[-1]}'{also}", f"Known keys there: {', '.join(known)}.")
        elif problem["type"] == "missing":
            yield EntryError(mark, f"'{path[-1]}' is missing.")
        else:
            key = next((f"'{one}': " for one in reversed(path) if isinstance(one, str)), "")
            yield EntryError(node.mark, f"{key}{_explain(problem, node.value)}")


def _explain(problem: Any, value: object) -> str:
    """Return what is wrong with a value, as one sentence."""
    kind, message = problem["type"], problem["msg"]
    if kind == "value_error":
        return f"{message.removeprefix('Value error, ').rstrip('.?')}{'?' if message.endswith('?') else '.'}"
    expected = _EXPECTED.get(kind) or message.removeprefix("Input should be ")
    shown = "" if isinstance(value, (dict, list)) else f", not {value!r}"
    return f"must be {expected}{shown}."


def _known_keys(path: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = Contract
    for step in path:
        field = model.model_fields.get(str(step))
        model = model if field is None else next(inner_models(field.annotation), model)
    return list(model.model_fields)


def _combined(document: Document, problems: list[EntryError]) -> ConfigurationError:
    problems.sort(key=lambda one: (one.mark.line, one.mark.column))
    first = problems[0]
    if len(problems) == 1:
        return document.error(first.mark, first.problem, hint=first.hint)
    shown = []
    for one in problems[:_MOST_PROBLEMS]:
        guess = re.match(r"Did you mean .*?\?", one.hint or "")
        shown.append(f"{document.at(one.mark)}: {one.problem}{f' {guess[0]}' if guess else ''}")
    more = [f"and {len(problems) - _MOST_PROBLEMS} more"] * (len(problems) > _MOST_PROBLEMS)
    return ConfigurationError(
        "\n".join([f"{len(problems)} problems in {document.name}:", *shown, *more]),
        file=document.name,
        line=first.mark.line,
        column=first.mark.column,
    )
