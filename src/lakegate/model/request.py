"""One ingest's request, from the front door to the commit, and what it would do."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.batch import Batch, Claim, SourceFile
from lakegate.model.checks import Check, Tolerance
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema, SchemaChange
from lakegate.model.sqltext import SqlTextError, sql_tokens

OnFailure = Literal["keep", "drop"]
"""Keep or drop the branch of a rejected batch."""
OnChanged = Literal["refuse", "append", "replace"]
"""What to do with a file whose path was published before with other content."""
OnBusy = Literal["wait", "skip"]
"""What to do with a file that another run is working on."""
OnSameContent = Literal["append", "skip", "refuse"]
"""What to do with a file whose very bytes were published from another path."""

SchemaMode = Literal["strict", "evolve", "ignore_extra"]
"""What to do when a batch's columns aren't the table's.

``strict`` refuses the batch. ``evolve`` adds new columns, widens types where nothing is lost, and writes NULL where a
column is missing. ``ignore_extra`` leaves out the columns that the table lacks.
"""


ModeName = Literal["append", "overwrite", "replace-partitions", "upsert", "merge-sql"]
"""What a batch does to existing rows.

``append`` adds its rows. ``overwrite`` replaces all rows of the table with them, ``replace-partitions`` those in the
same partitions. ``upsert`` updates the rows with the same key and inserts the others. ``merge-sql`` is a ``MERGE`` of
your own.
"""


TableMode = Literal["append", "overwrite", "replace-partitions", "upsert"]
"""The modes that a table can have by its settings."""


class WriteMode(Value):
    """What a batch does to existing rows, and what that takes.

    Attributes:
        key: Columns that identify a row; of an upsert only.
        delete_when: Predicate about the batch's rows, in Spark SQL, for which an upsert deletes; of an upsert only.
        merge_sql: The ``MERGE`` statement, which reads the batch as ``batch``; of ``merge-sql`` only.
    """

    name: ModeName = "append"
    key: tuple[str, ...] = ()
    delete_when: str | None = None
    merge_sql: str | None = None

    @property
    def appends(self) -> bool:
        """Whether existing rows don't matter."""
        return self.name == "append"

    @property
    def needs_all_files(self) -> bool:
        """Whether rows that aren't in the batch go, so that no file of it may be left out."""
        if self.merge_sql is not None:
            try:
                words = [token.upper for token in sql_tokens(self.merge_sql)]
            except SqlTextError:
                return True
            return ("BY", "SOURCE") in pairwise(words)
        return self.name in {"overwrite", "replace-partitions"}

    @property
    def can_repeat(self) -> bool:
        """Whether writing a batch again, after others, gives the table its rows, and none twice."""
        return self.name in {"overwrite", "replace-partitions", "upsert"}

    @property
    def writes_each_row(self) -> bool:
        """Whether each row of the batch becomes a row of the table."""
        return self.name not in {"upsert", "merge-sql"}


class ContractTerms(Value):
    """What a contract says about a table's columns.

    Attributes:
        file: The contract's file, for messages.
        columns: Columns that the table must have; one of type ``""`` may be of any.
        extra_columns: Whether it may have others.
    """

    file: str
    columns: tuple[Column, ...] = ()
    extra_columns: bool = True


class IngestRequest(Value):
    """What a user asks an ingest to do, with the settings' defaults filled in.

    Planning resolves it (``base``, column names, checks), claiming narrows it down to the files that are this run's.

    Attributes:
        base: Hash of ``target`` that the run starts from, where its branch is made; empty before planning.
        partition_by: Transforms for a table that is created, such as ``days(pickup)``; ignored when it exists.
        contract: What the table's contract says about its columns, if it has one.
        create_as: Columns to create the table with, where they aren't those of the files; found by planning.
        wait_s: Seconds to wait for another run that is working on the same file.
        replaces: Runs whose rows in the table go when this one is published.
        again: URIs of files of the batch that other runs have published, and that are written once more, because what
            isn't in the batch goes. They stay those runs' own, unlike a file that went back to what it held before.
        quarantine_limit: Rows that may be quarantined, a number or a share of the batch's; more reject the batch.
            ``None``: any number.
        masked: Patterns of columns whose values aren't written into the reasons of quarantined rows.
        schema_mode: What to do when the batch's columns aren't the table's.
        schema_changes: What the run changes of the table's columns; empty before planning.
        reads: Tables that the batch was computed from: the run fails if one changes before it is published.
        reads_at: Commit of ``target`` that they were read at.
        mode: What the batch does to existing rows.
    """

    run_id: str
    table: TableIdentifier
    branch: str
    base: str = ""
    batch: Batch
    checks: tuple[Check, ...] = ()
    partition_by: tuple[str, ...] = ()
    contract: ContractTerms | None = None
    create_as: Schema | None = None
    target: str = "main"
    on_failure: OnFailure = "keep"
    on_changed: OnChanged = "refuse"
    on_busy: OnBusy = "wait"
    on_same_content: OnSameContent = "append"
    wait_s: float = 600.0
    replaces: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    quarantine_limit: Tolerance | None = None
    masked: tuple[str, ...] = ()
    schema_mode: SchemaMode = "strict"
    schema_changes: tuple[SchemaChange, ...] = ()
    reads: tuple[str, ...] = ()
    reads_at: str = ""
    mode: WriteMode = WriteMode()

    @property
    def own_files(self) -> tuple[SourceFile, ...]:
        """The files that the run publishes: those that aren't written ``again``."""
        return tuple(file for file in self.batch.files if file.uri not in self.again)


class IngestPlan(Value):
    """A request that passed all validation that needs no write.

    Attributes:
        request: The request.
        exists: Whether the table exists on the target.
        table_schema: The table's columns, as they are or would be created.
        notes: What becomes of columns that the batch or the table lacks, a sentence each.
        descriptions: One sentence for each check, in order.
        known: The files that aren't new to the table. Only :meth:`lakegate.Lake.plan` fills it in.
    """

    request: IngestRequest
    exists: bool
    table_schema: Schema
    descriptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    known: Claim = Claim()
