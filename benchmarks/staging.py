"""Tables and staged runs in milliseconds: PyIceberg writes what Spark would.

What is measured with them begins where Spark's part ends, and touches metadata only, which is alike: a data file, a
manifest and a manifest list for each run, on a branch of Nessie's. All of it passes lakegate's own audit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from lakegate.checks import parse_checks
from lakegate.context import Context
from lakegate.ledger.sync import sync
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, CommitRequest, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, Run, new_run_id
from lakegate.wap.audit import audit
from lakegate.wap.stage import missing_namespaces, new_table, staged_table

ROWS = 10
COLUMNS = tuple(SourceColumn(name=name, type="int64") for name in ("id", "vendor", "passengers"))
CHECKS = tuple(
    check for text in ("not_null(id)", "in_range(id, 0)", "row_count(min=1)") for check in parse_checks(text)
)
_SCHEMA = pa.schema([(column.name, pa.int64()) for column in COLUMNS])


class Staging:
    """Makes tables and staged, audited runs; one thread's.

    Args:
        store: PyIceberg's properties of a catalog whose tables are elsewhere than the lake's, ``warehouse`` among them.
    """

    def __init__(self, context: Context, store: Mapping[str, str] = MappingProxyType({})) -> None:
        self._context = context
        self._warehouse = store.get("warehouse")
        properties = {"warehouse": context.warehouse, **store, "uri": "sqlite:///:memory:"}
        self._memory = SqlCatalog("staging", **properties)
        self._memory.create_namespace("b")
        self._ids = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()

    def create(self, name: str, *, target: str = MAIN, appends: Sequence[int] = ()) -> TableIdentifier:
        """Create a table on ``target`` whose history is ``appends``, each of that many data files (:meth:`grown`)."""
        table = TableIdentifier.parse(name)
        self.put(self.grown(self.empty(table), appends), target)
        return table

    def empty(self, table: TableIdentifier) -> TablePointer:
        """Return a new table, which no commit has."""
        location = new_table(self._context, table, new_run_id()).location
        if self._warehouse is not None:
            location = f"{self._warehouse}/{'/'.join(table.namespace)}/{location.rpartition('/')[2]}"
        return _pointer(self._memory.create_table(f"b.t{uuid4().hex}", _SCHEMA, location=location), table, None)

    def grown(self, pointer: TablePointer, appends: Sequence[int]) -> TablePointer:
        """Return a table after more appends, each of that many data files. The files are not there; nobody looks."""
        made = self._open(pointer)
        width = len(made.schema().fields)
        for count in appends:
            with made.transaction() as change, change.update_snapshot().fast_append() as append:
                for number in range(count):
                    append.append_data_file(_data_file(f"{made.location()}/data/{uuid4()}-{number}.parquet", width))
        return _pointer(made, pointer.table, pointer.content_id)

    def put(self, pointer: TablePointer, target: str) -> None:
        """Commit a table's state to ``target``."""
        head = self._context.catalog.get_ref(target)
        request = CommitRequest(
            branch=target,
            base=head.hash,
            message=f"Put {pointer.table}",
            puts=(pointer,),
            namespaces=missing_namespaces(self._context, pointer.table.namespace, head),
        )
        self._context.catalog.commit(request)

    def stage(self, table: TableIdentifier, *, target: str = MAIN) -> Run:
        """Return a run that has appended :data:`ROWS` rows to ``table`` on its branch and passed its audit."""
        context, run_id = self._context, new_run_id()
        base = sync(context, target)  # as an ingest does
        before = context.catalog.get_table(table, base)
        assert before is not None
        branch = context.catalog.create_branch(f"wap/{table}_{run_id}", base)
        opened = self._open(before)
        opened.append(self._rows(), snapshot_properties={RUN_ID_PROPERTY: run_id})
        pointer = _pointer(opened, table, before.content_id)
        branch = context.catalog.commit(
            CommitRequest(branch=branch.name, base=branch.hash, message=f"Append to {table}", puts=(pointer,))
        )
        change = context.reader.change(before, pointer)
        staged = staged_table(run_id, target, base.hash, branch, before, pointer, change)
        return Run(
            run_id=run_id,
            tables=(str(table),),
            branch=branch.name,
            status="staged",
            started_at=datetime.now(UTC),
            target=target,
            base=base.hash,
            request=_request(run_id, table, branch.name, base.hash, target),
            staged=(staged,),
            reports=(audit(context, staged, CHECKS),),
        )

    def _open(self, pointer: TablePointer) -> Table:
        return self._memory.register_table(f"b.t{uuid4().hex}", pointer.metadata_location)

    def _rows(self) -> pa.Table:
        start = next(self._ids) * ROWS
        values = list(range(start, start + ROWS))
        return pa.table(dict.fromkeys(_SCHEMA.names, values), schema=_SCHEMA)


def request_of(source: SourceFile, **given: Any) -> IngestRequest:
    """Return the request of a run that writes one source file."""
    batch = Batch(format="parquet", files=(source,), columns=COLUMNS)
    return IngestRequest(batch=batch, checks=CHECKS, **given)


def source_file(run_id: str) -> SourceFile:
    """Return a source file that only this run has."""
    version = f"sha256:{uuid4().hex}{uuid4().hex}"
    return SourceFile(uri=f"file:///incoming/{run_id}.parquet", size_bytes=1_000, version=version, rows=ROWS)


def _request(run_id: str, table: TableIdentifier, branch: str, base: str, target: str) -> IngestRequest:
    return request_of(source_file(run_id), run_id=run_id, table=table, branch=branch, base=base, target=target)


def _pointer(table: Table, name: TableIdentifier, content_id: str | None) -> TablePointer:
    snapshot = table.current_snapshot()
    return TablePointer(
        table=name,
        content_id=content_id,
        metadata_location=table.metadata_location,
        snapshot_id=-1 if snapshot is None else snapshot.snapshot_id,
        schema_id=table.metadata.current_schema_id,
        spec_id=table.metadata.default_spec_id,
        sort_order_id=table.metadata.default_sort_order_id,
    )


def _data_file(path: str, width: int) -> DataFile:
    fields = range(1, width + 1)
    bound = (1).to_bytes(8, "little")
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=1_000,
        column_sizes=dict.fromkeys(fields, 100),
        value_counts=dict.fromkeys(fields, ROWS),
        null_value_counts=dict.fromkeys(fields, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(fields, bound),
        upper_bounds=dict.fromkeys(fields, bound),
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=0,
        spec_id=0,
    )
