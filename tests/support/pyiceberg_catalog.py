"""A catalog for PyIceberg that is a dictionary: its own needs a database, which costs more than writing the tables."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier, Properties


class DictCatalog(MetastoreCatalog, NoopCatalog):
    """What tests need of a catalog of one process. All namespaces exist.

    Args:
        warehouse: URI of the folder that all files are below.
        properties: What PyIceberg is told besides, such as ``s3.endpoint``.
    """

    def __init__(self, warehouse: str, **properties: str) -> None:
        super().__init__("test", warehouse=warehouse, **properties)
        self._locations: dict[Identifier, str] = {}

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        return {}

    def create_table(self, identifier: str | Identifier, schema: Schema | Any, *given: Any, **options: Any) -> Table:
        staged = self._create_staged_table(identifier, schema, *given, **options)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        return self.register_table(identifier, staged.metadata_location)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:  # noqa: FBT002 - PyIceberg's interface
        name = self.identifier_to_tuple(identifier)
        if name in self._locations and not overwrite:
            raise TableAlreadyExistsError(identifier)
        self._locations[name] = metadata_location
        return self.load_table(name)

    def load_table(self, identifier: str | Identifier) -> Table:
        name = self.identifier_to_tuple(identifier)
        if name not in self._locations:
            raise NoSuchTableError(identifier)
        location = self._locations[name]
        metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        current = self.load_table(table.name())
        after = self._update_and_stage_table(current, table.name(), requirements, updates)
        if after.metadata != current.metadata:
            self._write_metadata(after.metadata, after.io, after.metadata_location)
            self._locations[table.name()] = after.metadata_location
        return CommitTableResponse(metadata=after.metadata, metadata_location=self._locations[table.name()])
