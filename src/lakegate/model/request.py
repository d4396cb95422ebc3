"""One ingest's request, from the command or API call to the commit, and the plan made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from lakegate.errors import InputError
from lakegate.model.base import Value
from lakegate.model.batch import Batch, Claim, CsvOptions, FileFormat, SourceFile, is_zone
from lakegate.model.checks import Check, Tolerance
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.schema import Column, Schema, SchemaChange
from lakegate.model.words import did_you_mean

OnFailure = Literal["keep", "drop"]
"""Keep or drop the branch of a rejected batch."""
OnChanged = Literal["refuse", "append", "replace"]
"""What to do with a file whose path was published before with other content."""
OnBusy = Literal["wait", "skip"]
"""What to do with a file that another run is working on."""

SchemaMode = Literal["strict", "evolve", "ignore_extra"]
"""What to do when a batch's columns aren't the table's.

``strict`` refuses the batch. ``evolve`` adds new columns, widens types where nothing is lost, and writes NULL where a
column is missing. ``ignore_extra`` leaves out the columns that the table lacks.
"""


ModeName = Literal["append", "overwrite", "replace-partitions", "upsert"]
"""What a batch does to existing rows.

``append`` adds its rows. ``overwrite`` replaces all rows of the table with them, ``replace-partitions`` those in the
same partitions. ``upsert`` updates the rows with the same key and inserts the others.
"""


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """How to ingest, as a command or a call said it: the keywords of :meth:`lakegate.Lake.ingest`.

    What's ``None`` or empty is left to the settings.

    Raises:
        InputError: A value isn't one of its choices, or a list or mapping isn't one.
    """

    run_id: str | None = None
    checks: Sequence[str | Check] = ()
    branch: str | None = None
    partition_by: Sequence[str] = ()
    on_failure: OnFailure | None = None
    on_changed: OnChanged | None = None
    on_busy: OnBusy | None = None
    quarantine_limit: Tolerance | None = None
    schema: SchemaMode | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    mode: ModeName | None = None
    key: Sequence[str] = ()
    delete_when: str | None = None
    format: FileFormat | None = None
    csv: CsvOptions | None = None
    timezone: str | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            value, choices = getattr(self, name), get_args(kind)
            if value is not None and value not in choices:
                hint = f"{did_you_mean(str(value), choices)}Use one of {', '.join(map(repr, choices))}."
                raise InputError(f"Invalid value: {name}={value!r}.", hint=hint)
        if self.timezone is not None and not is_zone(self.timezone):
            hint = "Pass a name of the IANA's time zones, such as Europe/Berlin or UTC."
            raise InputError(f"There is no time zone '{self.timezone}'.", hint=hint, option="timezone")
        require_list("checks", self.checks)
        require_list("partition_by", self.partition_by)
        columns: Any = self.columns
        names = (*columns, *columns.values()) if isinstance(columns, Mapping) else (None,)
        if not all(isinstance(name, str) and name for name in names):
            hint = 'Map each name in the files to the one in the table: columns={"Fare": "fare_amount"}'
            raise InputError(f"columns={columns!r} doesn't map column names to column names.", hint=hint)


class IngestKeywords(TypedDict, total=False):
    """The fields of :class:`IngestOptions` as keywords, for functions that take them one by one."""

    run_id: str | None
    checks: Sequence[str | Check]
    branch: str | None
    partition_by: Sequence[str]
    on_failure: OnFailure | None
    on_changed: OnChanged | None
    on_busy: OnBusy | None
    quarantine_limit: Tolerance | None
    schema: SchemaMode | None
    columns: Mapping[str, str]
    mode: ModeName | None
    key: Sequence[str]
    delete_when: str | None
    format: FileFormat | None
    csv: CsvOptions | None
    timezone: str | None
    timeout_s: float | None


_CHOICES = {
    "on_failure": OnFailure,
    "on_changed": OnChanged,
    "on_busy": OnBusy,
    "schema": SchemaMode,
    "mode": ModeName,
    "format": FileFormat,
}


def require_list(name: str, value: object) -> None:
    """Raise an :class:`InputError` if an argument is one check or text, instead of a list of them."""
    if isinstance(value, (str, Check)):
        raise InputError(f"{name}={value!r} isn't a list.", hint=f"Put it into one: {name}=[{value!r}]")


class WriteMode(Value):
    """What a batch does to existing rows.

    Attributes:
        key: For ``upsert``: columns that identify a row.
        delete_when: For ``upsert``: Spark SQL predicate on the batch's rows. Where it's true, the matching row is
            deleted.
    """

    name: ModeName = "append"
    key: tuple[str, ...] = ()
    delete_when: str | None = None

    @property
    def appends(self) -> bool:
        """Whether it only adds rows."""
        return self.name == "append"

    @property
    def needs_all_files(self) -> bool:
        """Whether it removes rows that the batch lacks, so that leaving out a file would lose rows."""
        return self.name in {"overwrite", "replace-partitions"}

    @property
    def writes_each_row(self) -> bool:
        """Whether each row of the batch becomes a row of the table."""
        return self.name != "upsert"


class ContractTerms(Value):
    """What a contract says about a table's columns.

    Attributes:
        file: The contract's file, for messages.
        columns: Columns that the table must have; type ``""`` allows any type.
        extra_columns: Whether it may have other columns.
    """

    file: str
    columns: tuple[Column, ...] = ()
    extra_columns: bool = True


class IngestRequest(Value):
    """An ingest as the user requested it, with defaults from the settings.

    Planning fills in ``base``, column names and checks. Claiming narrows the batch down to files no other run has.

    Attributes:
        base: Hash of ``target`` that the run's branch is made from; empty before planning.
        partition_by: Transforms for a new table, such as ``days(pickup)``; ignored if the table exists.
        contract: What the table's contract says about its columns, if it has one.
        create_as: Columns to create the table with if they differ from the files'; set by planning.
        wait_s: Seconds to wait for another run that is working on the same file.
        replaces: Runs whose rows are removed from the table when this run is published.
        again: URIs of files that other runs published and this one writes again, because its mode removes rows that
            the batch lacks. They stay attributed to those runs, unlike a file that changed back to earlier content.
        unread: URIs of files whose columns planning didn't look at, because they were published already.
        quarantine_limit: How many rows may be quarantined, as a number or a share of the batch. With more, the batch is
            rejected. ``None``: no limit.
        masked: Patterns of columns whose values aren't written into the reasons of quarantined rows.
        schema_mode: What to do if the batch's columns differ from the table's.
        schema_changes: Changes that the run makes to the table's columns; empty before planning.
        reads: Tables that the batch was computed from. The run fails if one changes before the publish.
        reads_at: Commit of ``target`` at which they were read.
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
    target: str = MAIN
    on_failure: OnFailure = "keep"
    on_changed: OnChanged = "refuse"
    on_busy: OnBusy = "wait"
    wait_s: float = 600.0
    replaces: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    quarantine_limit: Tolerance | None = None
    masked: tuple[str, ...] = ()
    schema_mode: SchemaMode = "strict"
    schema_changes: tuple[SchemaChange, ...] = ()
    reads: tuple[str, ...] = ()
    reads_at: str = ""
    mode: WriteMode = WriteMode()

    @property
    def own_files(self) -> tuple[SourceFile, ...]:
        """The files that count as published by this run: all but those written ``again``."""
        return tuple(file for file in self.batch.files if file.uri not in self.again)


class IngestPlan(Value):
    """A request that passed all validation possible without writing.

    Attributes:
        request: The request.
        exists: Whether the table exists on the target.
        table_schema: The table's columns, or those it would be created with.
        notes: What happens to columns that the batch or the table lacks, a sentence each.
        descriptions: One sentence for each check, in order.
        known: The files that aren't new to the table. Only :meth:`lakegate.Lake.plan` fills it in.
    """

    request: IngestRequest
    exists: bool
    table_schema: Schema
    descriptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    known: Claim = Claim()
