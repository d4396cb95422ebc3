"""The facade's part that writes, audits and publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from lakegate.errors import ConflictError
from lakegate.flow import review
from lakegate.flow.deadline import Deadline
from lakegate.flow.discard import discard_run
from lakegate.flow.history import sync
from lakegate.flow.ingest import Stage, go_on, ingest
from lakegate.flow.plan import plan
from lakegate.flow.transaction import Transaction, transaction
from lakegate.lake.base import MAIN, Checks, LakeBase, Paths
from lakegate.model.batch import Batch, CsvOptions, FileFormat
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.order import IngestOrder, OnBusy, OnChanged, OnFailure
from lakegate.model.plan import IngestPlan
from lakegate.model.run import Run, new_run_id

_Result = TypeVar("_Result")


class IngestOptions(TypedDict, total=False):
    """How to ingest; what is left out is as the settings say.

    Attributes:
        run_id: Id of the run, by default a new one. A run of that id is gone on with, and found when it has ended.
        checks: Checks beside those of the table's settings: text (``"not_null(id)"``) or values.
        branch: Name of the branch; by default one made from table and run id.
        partition_by: Transforms for a table that is created (``"days(pickup)"``).
        on_failure: ``keep`` or ``drop`` the branch of a rejected batch.
        on_changed: What to do with a file whose path was published with other content: ``refuse``, ``append`` its rows,
            or ``replace`` the old ones.
        on_busy: ``wait`` for a run that is at the same file, or ``skip`` the file.
        format: ``parquet`` or ``csv``; by default told from the files.
        csv: How to read CSV.
        timeout_s: Seconds after which the run is left where it is, parked for the next call with its ``run_id``. The
            engine's work is cancelled then, which takes some seconds more.
    """

    run_id: str | None
    checks: Checks
    branch: str | None
    partition_by: Sequence[str]
    on_failure: OnFailure | None
    on_changed: OnChanged | None
    on_busy: OnBusy | None
    format: FileFormat | None
    csv: CsvOptions | None
    timeout_s: float | None


class Writing(LakeBase):
    """Writes to branches, audits, publishes."""

    def ingest(self, table: str, paths: Paths, **options: Unpack[IngestOptions]) -> Run:
        """Write files to a branch, audit them, and publish them to ``main``, or not at all.

        A file's version (path and content) is published to a table once: files that are published already are left
        out, and so is, for as long as another run is at it, a file that this one would have to wait for too long.

        Args:
            table: ``namespace.table``; created on the branch when it does not exist.
            paths: Files, globs or folders; parquet or CSV.
            **options: See :class:`IngestOptions`.

        Returns:
            The run: ``published``, ``rejected`` or ``skipped`` (nothing to publish).

        Raises:
            InputError: When files, names or checks are wrong. Nothing was written.
            RetryableError: When catalog or engine are away, or ``main`` never stood still. Nothing was published. With
                ``timeout_s`` also when that is over; the run is parked then, whatever it was that went wrong.
            OutcomeUnknownError: When the catalog went away with the commit.
        """
        parks = options.get("timeout_s") is not None
        if parks or options.get("run_id") is not None:
            return self._step(table, paths, options, until="publish", parks=parks)
        # Before the rooms: nothing need be started to find that a file is damaged.
        order = self._order(table, paths, options)
        return ingest(self._wiring.rooms, order)

    def plan(self, table: str, paths: Paths, **options: Unpack[IngestOptions]) -> IngestPlan:
        """Return what :meth:`ingest` would do, or raise what would stop it. Writes nothing."""
        order = self._order(table, paths, options)
        planned = plan(self._wiring.rooms, order, base=sync(self._wiring.rooms, MAIN))
        known = self._wiring.journal.known(table, order.batch.files)
        return planned.model_copy(update={"known": known})

    @contextmanager
    def transaction(
        self, name: str | None = None, *, branch: str | None = None, on_failure: OnFailure | None = None
    ) -> Iterator[Transaction]:
        """Write to any number of tables on one branch; publish them together when the block ends, or nothing.

        Each table is audited by the checks of its settings and those added by
        :meth:`~lakegate.flow.transaction.Transaction.check`. An exception in the block discards everything.

        Args:
            name: What to call it in the history; default: its tables.
            branch: Name of the branch; by default one made from name and run id.
            on_failure: ``keep`` or ``drop`` the branch when an audit fails; default: the settings.

        Raises:
            AuditFailedError: When the block ends and a check fails. Nothing is published.
            ConflictError: When the block ends and ``main`` changed on a table that was read, overwritten or upserted.
                Run it again; :meth:`transact` does so by itself.

        Example:
            .. code-block:: python

                with lake.transaction(name="daily") as tx:
                    tx.append("nyc.trips", rows)
                    totals = tx.sql("SELECT zone, count(*) AS trips FROM nyc.trips GROUP BY zone")
                    tx.overwrite("nyc.totals", totals)
        """
        run_id = new_run_id()
        with transaction(
            self._wiring.rooms,
            run_id=run_id,
            name=name,
            branch=branch or f"{self.settings.ingest.branch_prefix}/transaction_{run_id}",
            target=MAIN,
            configured=self._configured,
            on_failure=on_failure or self.settings.ingest.on_failure,
        ) as tx:
            yield tx

    def transact(
        self, work: Callable[[Transaction], _Result], *, name: str | None = None, attempts: int = 3
    ) -> _Result:
        """Run ``work`` in a transaction, and again on a fresh base when ``main`` changed on what it relied on.

        Args:
            work: Gets the transaction; may be called more than once.
            name: What to call it in the history.
            attempts: How often to try.

        Returns:
            What ``work`` returned in the attempt that was published.

        Raises:
            ConflictError: When the last attempt met a conflict too.
        """
        for _ in range(attempts - 1):
            try:
                with self.transaction(name) as tx:
                    result = work(tx)
            except ConflictError as error:
                self._wiring.narrator.note(f"{error.message.split(';')[0]}; running it again on top of that.")
            else:
                return result
        with self.transaction(name) as tx:
            return work(tx)

    def audit(self, table: str, *, branch: str, checks: Checks | None = None) -> AuditReport:
        """Audit what ``branch`` added to ``table``, and remember the report for :meth:`publish`.

        Args:
            table: A table that the branch changed.
            branch: A branch, made by lakegate or by hand.
            checks: Default: those of the run that wrote the branch, else the table's settings.

        Raises:
            NotFoundError: When there is no such branch.
            InputError: When the branch did not change the table, or did more than append.
        """
        identifier = TableIdentifier.parse(table)
        given = None if checks is None else self._checks(identifier, checks, configured=False)
        return review.audit_branch(self._wiring.rooms, identifier, branch, checks=given, configured=self._configured)

    def publish(self, branch: str) -> Run:
        """Publish what stands on ``branch``, auditing it first unless this very state passed its audit already.

        Raises:
            AuditFailedError: When the audit fails. The branch stays.
            ConflictError: When ``main`` changed on one of its tables. The branch stays.
            NotFoundError: When there is no such branch.
        """
        return review.publish_branch(self._wiring.rooms, branch, configured=self._configured)

    def discard(self, branch: str) -> Run | None:
        """Drop ``branch`` with all that was written to it.

        Returns:
            The run that wrote it, ``discarded`` unless it was published before; ``None`` when the journal knows none.

        Raises:
            NotFoundError: When there is no such branch.
            InputError: When it is ``main``, or a tag.
        """
        return discard_run(self._wiring.rooms, branch)

    def _step(self, table: str, paths: Paths, options: IngestOptions, *, until: Stage, parks: bool) -> Run:
        run_id = validate_run_id(options.get("run_id") or new_run_id())
        given: IngestOptions = {**options, "run_id": run_id}
        deadline = Deadline.after(options.get("timeout_s"))
        return go_on(
            self._wiring.rooms,
            run_id,
            until=until,
            table=TableIdentifier.parse(table),
            order=lambda: self._order(table, paths, given),
            parks=parks,
            deadline=deadline,
        )

    def _order(self, table: str, paths: Paths, options: IngestOptions) -> IngestOrder:
        identifier = TableIdentifier.parse(table)
        defaults = self.settings.ingest
        known = self.settings.table(identifier)
        run_id = validate_run_id(options.get("run_id") or new_run_id())
        return IngestOrder(
            run_id=run_id,
            table=identifier,
            batch=self._discover(paths, options.get("format"), options.get("csv") or known.csv),
            checks=self._checks(identifier, options.get("checks", ()), configured=True),
            branch=options.get("branch") or f"{defaults.branch_prefix}/{identifier}_{run_id}",
            partition_by=tuple(options.get("partition_by") or known.partition_by),
            target=MAIN,
            on_failure=options.get("on_failure") or defaults.on_failure,
            on_changed=options.get("on_changed") or defaults.on_changed,
            on_busy=options.get("on_busy") or defaults.on_busy,
            wait_s=defaults.wait_s,
        )

    def _discover(self, paths: Paths, file_format: FileFormat | None, csv: CsvOptions) -> Batch:
        from lakegate.sources import discover  # noqa: PLC0415 - loads pyarrow

        listed = [paths] if isinstance(paths, (str, Path)) else paths
        return discover(
            [str(path) for path in listed],
            format=file_format,
            csv=csv,
            storage=self.settings.storage,
            narrator=self._wiring.narrator,
        )
