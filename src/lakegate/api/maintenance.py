"""``lake.maintenance``: keep tables fast, the warehouse small, and the journal true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from lakegate.api.refs import get_table, resolve_ref
from lakegate.components import Components
from lakegate.config import HOME_NAME, MaintenancePolicy
from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import (
    GcReport,
    JournalStatus,
    MaintenanceReport,
    MaintenanceStep,
    RebuiltJournal,
    VerifyReport,
)
from lakegate.model.refs import MAIN
from lakegate.model.run import Run, new_run_id
from lakegate.model.words import LONGEST_AGE, parse_age, suggest_keywords
from lakegate.telemetry.metrics import Sample
from lakegate.upkeep.gc import gc, warehouse_time
from lakegate.wap.rebuild import rebuild
from lakegate.wap.recover import recover


@suggest_keywords
class Maintenance:
    """Keeps tables fast, the warehouse small, and the journal true: ``lake.maintenance``.

    Raises:
        RetryableError: The catalog, the journal or the warehouse can't be reached, or ``main`` kept changing.
        ConfigurationError: A duration is invalid.
    """

    def __init__(self, components: Components) -> None:
        self._components = components

    def maintain(
        self,
        tables: Sequence[str] = (),
        *,
        dry_run: bool = False,
        within: str | timedelta | None = None,
        gc: bool | None = None,
        watcher: Callable[[MaintenanceStep], object] | None = None,
    ) -> MaintenanceReport:
        """Compact tables, expire snapshots and collect garbage, where the settings say it's due.

        Each change to a table is a run of its own: if you stop a round, the next one continues. A table that fails
        doesn't hold up the others. Tables with the most small files come first.

        Args:
            tables: Names or patterns, such as ``nyc.*``. Default: all tables on ``main``.
            dry_run: Change nothing; return what is due.
            within: Start no new work after this long, such as ``1h``. Default: ``maintenance.within``.
            gc: Whether to run :meth:`gc` afterwards. Default: ``maintenance.gc``.
            watcher: Called with each step once it has ended.

        Returns:
            What was due, and the outcome of each step.

        Raises:
            NotFoundError: A name or pattern matches no table.
            RetryableError: Also if another process is maintaining the lake.

        Example:
            >>> lake.maintenance.maintain(["nyc.trips"], dry_run=True).steps
            ()
        """
        from lakegate.upkeep.maintain import Maintenance as Round

        settings = self._components.settings.maintenance
        limit = settings.within if within is None else within
        work = Round(
            self._components.context,
            policy_of=self._policy_of,
            within=None if limit is None else _duration(limit),
            actions={
                "compact": self.optimize,
                "expire": self._expire_by_policy,
            },
            gc=partial(self.gc, dry_run=dry_run) if (settings.gc if gc is None else gc) else None,
            on_step=watcher or (lambda _: None),
        )
        return work.plan(tables) if dry_run else work.run(tables)

    def _policy_of(self, table: TableIdentifier) -> MaintenancePolicy:
        own = self._components.contracts.settings_of(table).maintenance
        general = self._components.settings.maintenance
        return general if own is None else general.model_copy(update=own.model_dump(exclude_unset=True))

    def _expire_by_policy(self, table: str) -> Run:
        policy = self._policy_of(TableIdentifier.parse(table))
        return self.expire(table, older_than=policy.expire, keep=policy.keep)

    def optimize(
        self,
        table: str,
        *,
        sort: str | None = None,
        where: str | None = None,
        attempts: int = 3,
    ) -> Run:
        """Compact a table's small files on ``main`` by Iceberg's ``rewrite_data_files``, which changes no row.

        Rows that others append meanwhile stay. Afterwards, the number of rows is compared with the one before.

        Args:
            table: ``namespace.table``.
            sort: Order of the rows in the new files: ``pickup, zone desc``, or ``zorder(pickup, zone)``.
            where: Condition in SQL. Only files that may hold rows for which it's true are rewritten.
            attempts: Maximum number of attempts, if others rewrite the same files meanwhile.

        Returns:
            The run; ``skipped`` if there was nothing to compact.

        Raises:
            NotFoundError: There's no such table.
            SchemaError: It has no such column.
            InputError: The condition or the order can't be used.
            AuditFailedError: The number of rows changed. The hint says how to restore the table.
            ConflictError: The last attempt conflicted, too. Nothing was changed.

        Example:
            >>> lake.maintenance.optimize("nyc.trips").status
            'skipped'
        """
        from lakegate.checks.predicates import PredicateError, read_predicate
        from lakegate.wap.table_changes import optimize, sort_order

        context, identifier = self._components.context, TableIdentifier.parse(table)
        columns = get_table(self._components, table).schema
        order = None if sort is None else sort_order(sort, columns, identifier)
        try:
            condition = None if where is None else read_predicate(where).sql
        except PredicateError as error:
            raise InputError(f"--where {where!r} {error}.", hint="Write a condition about one row.") from None
        return optimize(context, identifier, sort=order, where=condition, attempts=attempts, new_run_id=new_run_id())

    def expire(self, table: str, *, older_than: str | timedelta, keep: int = 1) -> Run:
        """Remove old snapshots from a table's metadata on ``main``, in one commit. Deletes no file.

        Tags, branches and older commits keep theirs, so reading with ``at=`` works as before.

        Args:
            table: ``namespace.table``.
            older_than: Age, such as ``30d``.
            keep: Number of newest snapshots to keep, whatever their age.

        Returns:
            The run; ``skipped`` if no snapshot was that old.

        Raises:
            NotFoundError: There's no such table.
            InputError: ``keep`` isn't positive.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> lake.maintenance.expire("nyc.trips", older_than="30d").status
            'skipped'
        """
        from lakegate.wap.table_changes import expire_snapshots

        if keep < 1:
            raise InputError("At least one snapshot must be kept: the current one.", hint="keep=1")
        before = datetime.now(UTC) - _duration(older_than)
        return expire_snapshots(
            self._components.context,
            TableIdentifier.parse(table),
            before=before,
            keep=keep,
            new_run_id=new_run_id(),
        )

    def gc(
        self,
        *,
        dry_run: bool = False,
        keep_rejected: str | timedelta | None = None,
        grace: str | timedelta | None = None,
    ) -> GcReport:
        """Drop expired branches of rejected and failed runs, and delete files that no ref reaches.

        Files stay for ``gc.keep`` after the last commit that needed them. The warehouse must belong to this catalog
        alone; beside a catalog without branches, only what lakegate staged and never published is deleted. Also deletes
        reports of runs that are older than ``journal.keep_detail``.

        Args:
            dry_run: Change nothing; return what would be deleted.
            keep_rejected: How long to keep branches after their run ended, such as ``7d``. Default:
                ``ingest.keep_rejected``.
            grace: Don't delete files younger than this, such as ``1d``. Default: ``gc.keep``.

        Returns:
            What was dropped and deleted.

        Raises:
            ConfigurationError: The warehouse can't be listed or belongs to another catalog.
            RetryableError: Some files may already have been deleted.

        Example:
            >>> lake.maintenance.gc(dry_run=True, grace="1d").files
            0
        """
        self._components.require_own_warehouse()
        context, files, settings = self._components.context, self._components.files, self._components.settings
        if not dry_run:
            # Otherwise, an abandoned run would keep its files.
            recover(context)
        keep_detail = settings.journal.keep_detail
        return gc(
            context,
            files=files,
            keep_rejected=_duration(settings.keep_rejected if keep_rejected is None else keep_rejected),
            grace=_duration(settings.gc.keep if grace is None else grace),
            now=datetime.now(UTC) if dry_run or settings.catalog.is_target else warehouse_time(context, files),
            dry_run=dry_run,
            history=parse_age(settings.gc.keep),
            keep_detail=None if keep_detail is None else parse_age(keep_detail),
        )

    def verify(
        self,
        tables: Sequence[str] = (),
        *,
        deep: bool = False,
        since: str | datetime | None = None,
        grace: str | timedelta | None = None,
    ) -> VerifyReport:
        """Check that the journal, the catalog, the tables' metadata and their files agree. Changes nothing.

        Args:
            tables: Tables to check. Default: all, and files that nothing references, too.
            deep: Also count the rows in the footers of all Parquet files.
            since: A time, tag or commit of ``main``. Commits up to it that no run made aren't reported.
            grace: Files younger than this, such as ``1d``, aren't reported as orphaned. Default: ``gc.keep``.

        Returns:
            What was checked, and each problem with the command that fixes it.

        Raises:
            NotFoundError: A table is on no branch or tag, or there is no such commit.
            ConfigurationError: The warehouse can't be listed or belongs to another catalog.

        Example:
            >>> lake.maintenance.verify(["nyc.trips"], deep=True).passed
            True
        """
        self._components.require_own_warehouse()
        from lakegate.upkeep.verify import verify  # which loads the journal's parts

        keep = self._components.settings.gc.keep
        return verify(
            self._components.context,
            files=self._components.files,
            grace=_duration(keep if grace is None else grace),
            now=datetime.now(UTC),
            tables=[TableIdentifier.parse(table) for table in tables],
            deep=deep,
            since=None if since is None else resolve_ref(self._components, MAIN, since),
            history=parse_age(keep),
        )

    def metrics(self) -> Sequence[Sample]:
        """Return the metrics of all runs: how they ended, how long steps took, what waited. Takes milliseconds.

        Example:
            >>> any(sample.name == "lakegate_runs" for sample in lake.maintenance.metrics())
            True
        """
        return self._components.journal.metrics()

    def suspended_runs(self) -> Mapping[str, datetime]:
        """Return the ids of suspended runs and the time until which each is left alone, soonest first."""
        return self._components.journal.suspended()

    def journal_status(self) -> JournalStatus:
        """Return where the journal is and what it holds. Doesn't contact the catalog."""
        from lakegate.journal.schema import FORMAT

        journal = self._components.journal
        newest = journal.runs(limit=1)
        runs, files = journal.count()
        return JournalStatus(
            location=self._components.settings.journal.url or str(self._components.home / HOME_NAME / "journal.db"),
            version=str(FORMAT),
            synced=journal.synced(MAIN),
            runs=dict(runs),
            files=files,
            abandoned=tuple(run.run_id for run in journal.abandoned()),
            recovering={run_id: f"process {name.split(':')[1]}" for run_id, name in journal.recovering().items()},
            newest=newest[0].run_id if newest else None,
        )

    def rebuild_journal(self) -> RebuiltJournal:
        """Rebuild the journal's published runs and files from the history of ``main``, for example after losing it.

        Returns:
            What the journal holds now. On an error, it's unchanged.
        """
        return rebuild(self._components.context, MAIN)


def _duration(value: str | timedelta) -> timedelta:
    return min(value, LONGEST_AGE) if isinstance(value, timedelta) else parse_age(value)
