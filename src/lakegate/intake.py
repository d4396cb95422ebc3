"""Intake: paths, frames and queries become one request, and the request a run.

``lake.intake`` has the steps of :class:`lakegate.Lake` for programs that pass options on as one value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lakegate.components import Components
from lakegate.config import HOME_NAME
from lakegate.contracts.store import LoadedContract
from lakegate.errors import InputError, LakegateError, SchemaError
from lakegate.ledger.sync import sync
from lakegate.model.batch import Batch, CsvOptions, FileFormat, SourceFile
from lakegate.model.checks import Check, Tolerance
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.quarantine import parse_limit
from lakegate.model.refs import MAIN
from lakegate.model.request import IngestOptions, IngestPlan, IngestRequest, WriteMode
from lakegate.model.run import Run, new_run_id
from lakegate.model.words import unknown_column
from lakegate.private_files import copies_of, drop_copies, private_folder
from lakegate.storage.objects import is_remote
from lakegate.table import Query, Table
from lakegate.wap.claims import new_files, published_already
from lakegate.wap.deadline import Deadline
from lakegate.wap.ingest import Stage, ingest, resume, undo
from lakegate.wap.modes import choose_mode
from lakegate.wap.plan import plan

Paths = str | Path | Sequence[str | Path]
"""A file, folder or glob pattern, or several: local paths, ``file://``, ``s3://``, ``gs://`` or ``abfss://`` URIs."""
Frame = Any
"""Rows: a pandas, Polars or Spark frame, a DuckDB relation, an Arrow table, batch, reader or dataset, whatever else is
an Arrow stream, a list of dicts, or a list or generator of any of these."""


@dataclass(frozen=True)
class Sources:
    """What an ingest reads.

    Attributes:
        paths: Files, folders or glob patterns.
        reads: Tables of the lake that the rows were computed from.
        reads_at: Commit at which those tables were read.
    """

    paths: Sequence[str]
    reads: tuple[str, ...] = ()
    reads_at: str = ""


class Intake:
    """Turns what callers pass into requests, and runs them. Deletes the copies of sources when a run ends."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._uploaded: dict[str, tuple[SourceFile, ...]] = {}

    def ingest(self, table: str, paths: Paths | Frame, options: IngestOptions) -> Run:
        """Do what :meth:`lakegate.Lake.ingest` does."""
        if options.timeout_s is not None or options.run_id is not None:
            return self._run_step(table, paths, options, until="publish", suspends=options.timeout_s is not None)
        run_id = new_run_id()
        with self._temporary_copies(run_id):
            # Before the context: a damaged file is reported without starting anything.
            request = self.request(table, self._sources(paths, run_id), run_id, options)
            self._components.open_engine_ahead(request.batch.only(new_files(self._components.journal, request)))
            return ingest(self._components.context, request)

    def plan(self, table: str, paths: Paths | Frame, options: IngestOptions) -> IngestPlan:
        """Do what :meth:`lakegate.Lake.plan` does."""
        run_id = validate_run_id(options.run_id or new_run_id())
        with self._temporary_copies(run_id):
            request = self.request(table, self._sources(paths, run_id), run_id, options)
            context = self._components.context
            base = sync(context, MAIN)
            try:
                planned = plan(context, request, base=base)
            except SchemaError:  # the table may have got other columns since
                pointer = context.catalog.get_table(request.table, base)
                if pointer is None or published_already(context, request) is None:
                    raise
                schema = context.reader.metadata(pointer).table_schema
                planned = IngestPlan(request=request, exists=True, table_schema=schema)
        known = self._components.journal.known(table, request.batch.files)
        return planned.model_copy(update={"known": known if request.mode.appends else known.with_changed_back()})

    def write(self, table: str, paths: Paths | Frame, options: IngestOptions) -> Run:
        """Do what :meth:`lakegate.Lake.write` does."""
        return self._run_step(table, paths, options, until="write", suspends=True)

    def resume(self, run_id: str, *, until: Stage) -> Run:
        """Take a run that was written through the step ``until``."""
        return self._clean_up_if_ended(resume(self._components.context, run_id, until=until))

    def cancel(self, run_id: str, *, reason: str) -> Run:
        """Do what :meth:`lakegate.Lake.cancel_run` does."""
        return self._clean_up_if_ended(undo(self._components.context, run_id, reason=reason))

    def mode_of(self, table: str, options: IngestOptions) -> WriteMode:
        """Return what a batch would do to a table's existing rows.

        Raises:
            InputError: The options contradict each other.
        """
        configured = self._components.contracts.settings_of(TableIdentifier.parse(table)).mode
        return choose_mode(configured, options.mode, key=options.key, delete_when=options.delete_when)

    @contextmanager
    def reading(
        self,
        paths: Paths | Frame,
        file_format: FileFormat | None,
        csv: CsvOptions,
    ) -> Iterator[Batch]:
        """Yield a batch to read but not to ingest. The copies that this needs are deleted at the end."""
        run_id = new_run_id()
        with self._temporary_copies(run_id):
            sources = self._sources(paths, run_id)
            batch = self.discover(sources.paths, file_format, csv, run_id)
            self._note_left_out(batch)
            yield self.upload_if_needed(batch, run_id)

    @contextmanager
    def trying(self, contract: LoadedContract, paths: Paths, file_format: FileFormat | None) -> Iterator[IngestRequest]:
        """Yield the request for an ingest of files by a contract. Copies that this needs are deleted at the end."""
        run_id, options = new_run_id(), IngestOptions(format=file_format)
        with self._temporary_copies(run_id):
            request = self.request(str(contract.table), self._sources(paths, run_id), run_id, options, contract)
            self._note_left_out(request.batch)
            yield request

    def _note_left_out(self, batch: Batch) -> None:
        if batch.left_out:
            first = batch.left_out[0]
            others = f" and {len(batch.left_out) - 1:,} more" if len(batch.left_out) > 1 else ""
            self._components.narrator.note(f"Not read: {first.uri} ({first.reason}){others}.")

    def request(
        self,
        table: str,
        sources: Sources,
        run_id: str,
        options: IngestOptions,
        given: LoadedContract | None = None,
    ) -> IngestRequest:
        """Return the request for an ingest of ``sources``: the options, completed from the settings.

        Args:
            given: A contract to use instead of the table's own, to try files by.
        """
        from lakegate.sources.discovery import require_csv

        identifier, contracts = TableIdentifier.parse(table), self._components.contracts
        defaults = self._components.settings.ingest
        configured = contracts.settings_of(identifier) if given is None else given.settings
        checks = contracts.checks_of(identifier, options.checks) if given is None else given.checks
        contract = given or contracts.find(identifier)
        schema_mode = options.schema or configured.schema or defaults.schema
        mode = choose_mode(configured.mode, options.mode, key=options.key, delete_when=options.delete_when)
        discovered = partial(
            self.discover,
            sources.paths,
            options.format,
            options.csv or configured.csv,
            run_id,
            configured=configured.columns,
            added=options.columns,
        )
        try:
            batch = discovered(may_differ=schema_mode != "strict")
        except SchemaError:
            found = self._published_before(identifier, discovered) if given is None else None
            if found is None:
                raise
            batch = found
        require_csv(options.csv, batch)
        return IngestRequest(
            run_id=run_id,
            table=identifier,
            reads=sources.reads,
            reads_at=sources.reads_at,
            batch=self.upload_if_needed(batch.hiding(self._hidden_texts(batch, checks)), run_id).model_copy(
                update={"timezone": options.timezone or configured.timezone}
            ),
            checks=checks,
            branch=options.branch or f"{defaults.branch_prefix}/{identifier}_{run_id}",
            partition_by=tuple(options.partition_by or configured.partition_by),
            contract=None if contract is None else contract.terms,
            target=MAIN,
            on_failure=options.on_failure or defaults.on_failure,
            # Only an append would duplicate the rows of a changed file.
            on_changed=options.on_changed or (defaults.on_changed if mode.appends else "append"),
            on_busy=options.on_busy or defaults.on_busy,
            schema_mode=schema_mode,
            mode=mode,
            wait_s=defaults.wait_s,
            quarantine_limit=_limit(options.quarantine_limit, configured.quarantine_limit),
            masked=self._masked_columns,
        )

    def _published_before(self, table: TableIdentifier, discovered: Callable[..., Batch]) -> Batch | None:
        """Return files whose columns differ if all are published, so that their columns don't matter any more."""
        if not (self._components.home / HOME_NAME).is_dir():
            return None
        with suppress(SchemaError):
            batch = discovered(may_differ=True)
            known = self._components.journal.known(str(table), batch.files)
            return batch if len(known.published) == len(batch.files) else None
        return None

    def discover(
        self,
        paths: Sequence[str],
        file_format: FileFormat | None,
        csv: CsvOptions,
        run_id: str,
        *,
        may_differ: bool = False,
        configured: Mapping[str, str] = MappingProxyType({}),
        added: Mapping[str, str] = MappingProxyType({}),
    ) -> Batch:
        """Return the files at ``paths`` as one batch.

        Args:
            may_differ: Whether the files' columns may differ.
            configured: Columns to rename, where the files have them: the name in the files to the table's.
            added: Columns to rename, which the files must have.
        """
        from lakegate.sources import discover

        def discovered(*, may_differ: bool) -> Batch:
            return discover(
                paths,
                format=file_format,
                csv=csv,
                storage=self._components.settings.storage,
                narrator=self._components.narrator,
                may_differ=may_differ,
                copies=copies_of(self._components.home, run_id),
            )

        names = {**configured, **added}
        batch = discovered(may_differ=may_differ or bool(names))
        columns = [column.name for column in batch.columns]
        for old in added:
            if old.lower() not in map(str.lower, columns):
                raise unknown_column(f"The files have no column '{old}'.", old, columns)
        batch = batch.renamed(names)
        if not may_differ and not batch.has_one_shape:
            discovered(may_differ=False)  # raises, unless only inferred types differ
        return batch

    def upload_if_needed(self, batch: Batch, run_id: str) -> Batch:
        """Copy local files that the engine can't read to the warehouse. Return the batch with those copies."""
        components = self._components
        private = f"/{HOME_NAME}/sources/"  # copies of files, and rows from memory
        has_copies = any(private in (file.copy_uri or file.uri) for file in batch.files)
        is_readable = components.shares_files and (not has_copies or components.reads_private_files)
        if is_readable or not is_remote(components.warehouse):
            return batch
        from lakegate.sources.copies import upload

        uploaded = upload(batch, components.warehouse, run_id, components.settings.storage, components.narrator)
        self._uploaded[run_id] = (*self._uploaded.get(run_id, ()), *uploaded.files)
        has_temporary_folder = not copies_of(components.home, run_id).is_relative_to(components.home)
        if has_temporary_folder and all(file.copy_uri for file in batch.files):
            # Only this process reads its own temporary folder, and the disk of a function on AWS Lambda is small.
            drop_copies(components.home, run_id)
        return uploaded

    def drop_copies(self, run_id: str, files: Sequence[SourceFile] = ()) -> None:
        """Delete the copies of a run's sources, here and in the warehouse."""
        drop_copies(self._components.home, run_id)
        uploaded = {*self._uploaded.pop(run_id, ()), *files}
        if any(file.copy_uri is not None for file in uploaded):
            from lakegate.sources.copies import drop_uploads

            drop_uploads(tuple(uploaded), self._components.settings.storage)

    def _run_step(
        self, table: str, paths: Paths | Frame, options: IngestOptions, *, until: Stage, suspends: bool
    ) -> Run:
        run_id = validate_run_id(options.run_id or new_run_id())
        sources = cache(lambda: self._sources(paths, run_id))  # a generator can be read only once
        try:
            run = resume(
                self._components.context,
                run_id,
                until=until,
                table=TableIdentifier.parse(table),
                request=lambda: self.request(table, sources(), run_id, options),
                suspends=suspends,
                deadline=Deadline.after(options.timeout_s),
            )
        except Exception:
            with suppress(LakegateError):  # the first error is the one to report
                known = self._components.journal.get(run_id)
                if known is None or known.finished_at is not None:
                    self.drop_copies(run_id)
            raise
        return self._clean_up_if_ended(run)

    @contextmanager
    def _temporary_copies(self, run_id: str) -> Iterator[None]:
        try:
            yield
        finally:
            self.drop_copies(run_id)

    def _clean_up_if_ended(self, run: Run) -> Run:
        if run.finished_at is not None:
            self.drop_copies(run.run_id, () if run.request is None else run.request.batch.files)
        return run

    def _sources(self, given: Paths | Frame, run_id: str) -> Sources:
        """Return paths as they were given. Write rows to a file, and return its path."""
        if isinstance(given, (str, Path)):
            return Sources([str(given)])
        from lakegate.frames import are_rows

        if are_rows(given):
            return self._copy_rows(given, run_id)
        paths = list(given)
        odd = next((path for path in paths if not isinstance(path, (str, os.PathLike))), None)
        if odd is not None:
            raise InputError(
                f"Can't ingest a list of {type(odd).__name__}.",
                hint='Pass paths, a DataFrame, an Arrow table, or rows as dicts: [{"id": 1}]',
            )
        return Sources([str(path) for path in paths])

    def _copy_rows(self, given: Any, run_id: str) -> Sources:
        from lakegate.frames import spark_frame, to_batches
        from lakegate.sources.copies import write
        from lakegate.sources.inspection import combine
        from lakegate.sources.parquet import schema_problems

        narrator, kind = self._components.narrator, type(given)
        reads = given.reads if isinstance(given, Query) else ()
        if isinstance(given, Table) and given.commit:
            reads = (str(given.metadata.table),)
        if reads is None:
            narrator.note(
                "Can't tell for certain which tables the query reads. The rows will be published even if one of them "
                "changes meanwhile."
            )
        frame = spark_frame(given)
        if frame is not None:
            from lakegate.spark.dataframes import require_arrow_types
            from lakegate.spark.dataframes import to_batches as from_spark

            require_arrow_types(frame)
            schema, batches = from_spark(frame)
        else:
            schema, batches = to_batches(given)
        folder = private_folder(copies_of(self._components.home, run_id))
        target = folder / f"{kind.__module__.partition('.')[0].strip('_')}-{kind.__name__.lower()}.parquet"
        with narrator.step(f"Reading the rows of this {kind.__name__}"):
            problems = list(schema_problems(f"rows of this {kind.__name__}", schema))
            if problems:
                raise combine(problems)
            write(batches, schema, target)
        return Sources([str(target)], reads=reads or (), reads_at=given.commit if reads else "")

    @property
    def _masked_columns(self) -> tuple[str, ...]:
        settings = self._components.settings
        return ("*",) if settings.ui.examples == 0 else settings.masked

    def _hidden_texts(self, batch: Batch, checks: Sequence[Check]) -> tuple[str, ...]:
        """Return patterns of the columns whose values mustn't be stored with a batch."""
        masked = self._masked_columns
        # Without a header, the columns get their names from the table, later.
        is_unnamed = batch.csv is not None and not batch.csv.header
        return ("*",) if (masked and is_unnamed) or any(check.examples == 0 for check in checks) else masked


def _limit(given: Tolerance | None, configured: Tolerance | None) -> Tolerance | None:
    try:
        return configured if given is None else parse_limit(given)
    except ValueError as error:
        raise InputError(
            f"{error}.", hint="Use a number of rows, such as 100, or a percentage, such as '5%'."
        ) from None
