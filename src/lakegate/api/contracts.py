"""``lake.contracts``: contracts proposed from data, and tried on it."""

from __future__ import annotations

from pathlib import Path

from lakegate.api.refs import get_table
from lakegate.components import Components
from lakegate.errors import RetryableError
from lakegate.intake import Intake, Paths
from lakegate.model.batch import FileFormat
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.schema import Schema
from lakegate.model.words import counted, suggest_keywords
from lakegate.wap.trial import ContractTrial, try_contract


@suggest_keywords
class Contracts:
    """Contracts proposed from data, and tried on it: ``lake.contracts``.

    Raises:
        InputError: A file can't be read.
        RetryableError: The catalog or the engine can't be reached.
    """

    def __init__(self, components: Components, intake: Intake) -> None:
        self._components = components
        self._intake = intake

    def propose(
        self,
        table: str,
        paths: Paths | None = None,
        *,
        format: FileFormat | None = None,
        schema: str | None = None,
    ) -> str:
        """Propose a contract for a table by profiling all of its rows, or those of files.

        The profiled rows pass it. A comment beside each proposed check says what the data showed.

        Args:
            table: The table, ``namespace.table``.
            paths: Files, folders or glob patterns to profile instead of the table. Reading them needs Spark; reading a
                table doesn't.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.
            schema: File with the contracts' JSON Schema, which the first line names for editors.

        Returns:
            The contract, as YAML.

        Raises:
            NotFoundError: There's no such table.

        Example:
            >>> print(lake.contracts.propose("nyc.trips").splitlines()[1])
            version: 1
        """
        from lakegate.contracts.propose import profile, propose  # Arrow

        identifier, components = TableIdentifier.parse(table), self._components
        masked = components.settings.audit.mask
        if paths is None:
            existing = get_table(components, table)
            with components.narrator.step(f"Reading {table}"):
                columns = profile(existing.to_batches(), existing.schema)
            partition_by = existing.metadata.partition_by
            return propose(identifier, columns, source=table, partition_by=partition_by, schema=schema, masked=masked)
        csv = components.contracts.settings_of(identifier).csv
        with self._intake.reading(paths, format, csv) as batch:
            engine = components.file_engine
            with components.narrator.step(f"Reading {counted(len(batch.files), 'file')}"):
                source = engine.source_schema(batch)
                engine.read_batch(batch, source)
                columns = profile(engine.stream(engine.frame()), source)
        files = batch.uris[0] if len(batch.uris) == 1 else f"{batch.uris[0]} and {len(batch.uris) - 1} more"
        return propose(identifier, columns, source=files, schema=schema, masked=masked)

    def test(self, contract: str | Path, paths: Paths, *, format: FileFormat | None = None) -> ContractTrial:
        """Audit files by a contract, as an ingest would, but write nothing.

        If the table exists, its columns count, too. Neither catalog nor journal is needed.

        Args:
            contract: A contract's file, or a table that has one in the project.
            paths: Files, folders or glob patterns.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.

        Returns:
            The report, also when a check failed, and the checks that weren't tried because they need the lake.

        Raises:
            ConfigurationError: The contract can't be read.
            InputError: Also if a check doesn't apply to a file.

        Example:
            >>> from pathlib import Path
            >>> _ = Path("trips.yaml").write_text("{version: 1, table: nyc.trips, checks: [unique: trip_id]}")
            >>> lake.contracts.test("trips.yaml", "trips/*.parquet").passed
            True
        """
        components = self._components
        loaded = components.contracts.named(contract)
        with (
            components.narrator.step(f"Trying {loaded.file}"),
            self._intake.trying(loaded, paths, format) as request,
        ):
            return try_contract(
                loaded.file,
                request,
                components.file_engine,
                existing=self._columns_of(loaded.table),
                masked=components.settings.audit.mask,
                narrator=components.narrator,
            )

    def _columns_of(self, table: TableIdentifier) -> Schema | None:
        """Return a table's columns; ``None`` if it doesn't exist, or its catalog can't be asked."""
        components = self._components
        if components.settings.catalog.needs_nessie and not components.stack.has_catalog():
            return None  # no table was ever made here
        try:
            pointer = components.catalog.get_table(table, components.catalog.get_ref(MAIN))
        except RetryableError as error:
            components.narrator.note(f"{error.message} The files are tried as for a new table.")
            return None
        return None if pointer is None else components.reader.metadata(pointer).table_schema
