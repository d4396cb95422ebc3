"""Finds a project's contracts: ``contracts/NAMESPACE.TABLE.yaml`` in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lakegate.config import FILE_NAME, Settings, TableSettings
from lakegate.contracts.reader import LoadedContract, read_contract
from lakegate.errors import ConfigurationError, IdentifierError, NotFoundError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import did_you_mean

FOLDER = "contracts"
"""The folder of a project that holds its contracts."""
_SUFFIXES = (".yaml", ".yml")


def is_contract(path: Path) -> bool:
    """Return whether a file in the folder is a contract: it has a YAML extension, in any case, and isn't hidden."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


class Contracts:
    """The contracts of one project. Each is read when needed, and again if its file has changed.

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
            ConfigurationError: If the file isn't a contract, or belongs to another table; the table also has a section
                in ``lakegate.toml``; or a file in the folder isn't named after a table.
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
                hint=f"{guess}To propose one: lakegate check init {table}",
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
                f"{self._name(path)} isn't named like a table, so no run would find it: {error.message}",
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
        except OSError:
            version = (0, 0)
        known = self._read.get(path)
        if known is None or known[0] != version:
            loaded = read_contract(path, name=name)
            if loaded.table != table:
                raise ConfigurationError(
                    f"{name} is named like {table}, and says 'table: {loaded.table}'.",
                    hint=f"Rename it to {FOLDER}/{loaded.table}.yaml, or correct 'table'.",
                    file=name,
                )
            known = self._read[path] = (version, loaded)
        return known[1]

    def _name(self, path: Path) -> str:
        return f"{FOLDER}/{path.name}"
