"""Runs, the details of one run, and the files that runs published."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import unquote

from lakegate.dashboard.model import (
    CheckLine,
    Command,
    Problem,
    ReadModel,
    ResultPage,
    invalid_cursor,
    page_size,
    paginate,
    searchable,
    worst_first,
)
from lakegate.errors import NotFoundError
from lakegate.journal.pages import RunFilter, is_in_uri
from lakegate.model.base import Value
from lakegate.model.batch import SourceFile
from lakegate.model.downstream import Delivery
from lakegate.model.run import (
    Acceptance,
    Action,
    FileRecord,
    Notification,
    Run,
    RunError,
    RunLine,
    RunStatus,
    UndoneTable,
)
from lakegate.model.tables import ChangeKind

_MOST_NAMED = 5
_LONGEST_ID = 120
_MOST_DELIVERIES = 100


class RunSummary(RunLine):
    """One run in a list. Fields not described here are those of :class:`~lakegate.model.run.Run`.

    Attributes:
        seconds: Seconds that its steps took; ``None`` while it runs.
        rows: Rows that it added, or would add; ``None`` if unknown, like ``rows_removed``.
        quarantined: Rows of its batch that it set aside.
        failed_checks: Number of failed checks that block the publish.
        warned_checks: Number of failed checks of severity ``warn``.
        failing: Names of up to five failed checks.
        commit: Its commit on ``main``, once published.
        matching_files: Up to five of its files that match the search.
    """

    tables: tuple[str, ...]
    branch_kept: bool = False
    seconds: float | None = None
    rows: int | None = None
    rows_removed: int | None = None
    quarantined: int = 0
    files: int = 0
    checks: int = 0
    failed_checks: int = 0
    warned_checks: int = 0
    failing: tuple[str, ...] = ()
    commit: str | None = None
    accepted_by: str | None = None
    reverts: tuple[str, ...] = ()
    detail: str | None = None
    error_code: str | None = None
    matching_files: tuple[str, ...] = ()


class StepLine(Value):
    """One step of a run.

    Attributes:
        name: ``write``, ``audit`` or ``publish``.
        starts_s: Seconds from the run's start to the step's.
        seconds: How long it took; ``None`` while it runs.
        outcome: ``running``, ``done`` or ``failed``.
    """

    name: str
    started_at: datetime
    starts_s: float
    seconds: float | None = None
    outcome: str


class TableDelta(Value):
    """What a run or branch did, or would do, to one table. Row counts are ``None`` if unknown.

    Attributes:
        change: ``append``, ``create``, ``rewrite``, ``metadata`` or ``drop``.
        rebased: Whether the change was rebased onto newer commits of ``main``.
    """

    table: str
    change: ChangeKind
    rows_added: int | None = None
    rows_removed: int | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    data_files: int | None = None
    reason: str | None = None
    rebased: bool = False


class RunFile(Value):
    """One source file of a run.

    Attributes:
        name: Last part of its path, decoded.
        skipped_by: The run that had published it before, if this run skipped it.
        same_as: URI of another file with the same bytes.
    """

    uri: str
    name: str
    size_bytes: int
    rows: int
    skipped_by: str | None = None
    same_as: str | None = None


class RunDetail(Value):
    """One run.

    Attributes:
        checks: Results of its checks, failed ones first.
        accepted: Who published it although its audit failed, and why.
        actions: Actions that named people took on it.
        deliveries: Its events for downstream systems, sent or pending, newest first.
        suspended_until: Until when it waits for its orchestrator.
        branch_exists: Whether its branch exists; ``None`` if it had none, or the catalog is unavailable.
    """

    summary: RunSummary
    steps: tuple[StepLine, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    changes: tuple[TableDelta, ...] = ()
    undone: tuple[UndoneTable, ...] = ()
    accepted: Acceptance | None = None
    actions: tuple[Action, ...] = ()
    error: RunError | None = None
    notifications: tuple[Notification, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    suspended_until: datetime | None = None
    branch_exists: bool | None = None
    commands: tuple[Command, ...] = ()
    problems: tuple[Problem, ...] = ()


def list_runs(
    model: ReadModel, wanted: RunFilter | None = None, *, limit: int = 50, cursor: str | None = None
) -> ResultPage[RunSummary]:
    """Return a page of runs, newest first.

    Args:
        wanted: Which runs. Default: all. A search by file reads 20,000 runs at most; ``next`` continues from there.
    """
    wanted, size = wanted or RunFilter(), page_size(limit)
    after = None if cursor is None else _after(cursor)
    typed = {key: searchable(value) for key, value in wanted if isinstance(value, str)}
    wanted = wanted.model_copy(update=typed)
    found, end = model.journal.pages.runs(wanted, limit=size, after=after, whole=False)
    return ResultPage[RunSummary](
        items=tuple(summary_of(run, search=wanted.file) for run in found),
        next=None if end is None else f"{end[0].isoformat()} {end[1]}",
    )


def get_run(model: ReadModel, run_id: str, *, examples: int = 10) -> RunDetail:
    """Return one run, with ``ui.examples`` failing rows per check at most."""
    run = find_run(model, run_id)
    problems: list[Problem] = []
    exists: bool | None = None
    if run.branch:
        with model.reading("catalog", problems):
            exists = any(ref.name == run.branch for ref in model.branches())
    return RunDetail(
        summary=summary_of(run),
        steps=tuple(_steps(run)),
        checks=checks_of(model, run, examples=examples),
        changes=changes_of(run),
        undone=run.undone,
        accepted=run.accepted,
        actions=run.actions,
        error=run.error,
        notifications=run.notifications,
        deliveries=tuple(model.journal.outbox.list(run_id=run.run_id, limit=_MOST_DELIVERIES)),
        suspended_until=model.journal.suspended().get(run.run_id) if run.finished_at is None else None,
        branch_exists=exists,
        commands=tuple(next_commands(run, branch_exists=exists is not False and (exists or run.branch_kept))),
        problems=tuple(problems),
    )


def list_run_files(
    model: ReadModel, run_id: str, *, search: str = "", limit: int = 50, cursor: str | None = None
) -> ResultPage[RunFile]:
    """Return a page of a run's source files in batch order, skipped files last."""
    files = [file for file in _files(find_run(model, run_id)) if search.lower() in file_name(file.uri).lower()]
    items, following = paginate(files, cursor, limit)
    return ResultPage[RunFile](items=items, next=following, total=len(files))


def find_run(model: ReadModel, run_id: str) -> Run:
    """Return the run with this id or unique prefix of one. Raises the same errors as :func:`get_run`."""
    run_id = searchable(run_id[:_LONGEST_ID])
    journal = model.journal
    run = journal.get(run_id) if run_id else None
    if run is not None:
        return run
    # Find a prefix by id alone: a run's document can have megabytes.
    begin = journal.pages.with_prefix(run_id, limit=_MOST_NAMED) if run_id else []
    if len(begin) == 1 and (run := journal.get(begin[0])) is not None:
        return run
    many = f"{len(begin)} or more" if len(begin) == _MOST_NAMED else f"{len(begin)}"
    message = f"{many} runs start with '{run_id}'." if begin else f"Run '{run_id}' doesn't exist."
    raise NotFoundError(message, hint="lakegate runs", run_id=run_id)


def summary_of(run: Run, *, search: str | None = None) -> RunSummary:
    """Return a run as one line of a list, with the files that match ``search``."""
    results = [result for report in run.reports for result in report.results]
    failed = [result for result in results if result.verdict == "fail"]
    uris = run.request.batch.uris if run.request is not None else ()
    published = run.publication
    rows: int | None = None
    if published is not None:
        rows = run.rows_published
    elif run.staged:
        rows = sum(one.rows for one in run.staged) - run.quarantined
    elif run.request is not None:
        rows = run.request.batch.rows
    matching = () if not search else tuple(uri for uri in uris if is_in_uri(search, uri))
    return RunSummary(
        run_id=run.run_id,
        kind=run.kind,
        name=run.name,
        orchestrator=run.orchestrator,
        tables=run.tables,
        branch=run.branch,
        branch_kept=run.branch_kept,
        status=run.status,
        started_at=run.started_at,
        finished_at=run.finished_at,
        seconds=run.seconds,
        rows=rows,
        rows_removed=None if published is None else published.rows_removed,
        quarantined=run.quarantined,
        files=len(uris),
        checks=len(results),
        failed_checks=sum(1 for result in failed if result.blocks),
        warned_checks=sum(1 for result in failed if result.warns),
        failing=tuple(result.name for result in failed[:_MOST_NAMED]),
        commit=None if published is None else published.commit,
        accepted_by=None if run.accepted is None else run.accepted.actor,
        reverted_by=run.reverted_by,
        reverts=run.reverts,
        detail=run.detail,
        error_code=None if run.error is None else run.error.code,
        matching_files=tuple(map(file_name, matching[:_MOST_NAMED])),
    )


def checks_of(model: ReadModel, run: Run, *, examples: int = 0) -> tuple[CheckLine, ...]:
    """Return the results of a run's checks, failed ones first, with as many rows as the settings allow."""
    shown = min(examples, model.settings.ui.examples)
    return worst_first(
        CheckLine.of(report.table, one, examples=shown, masked=model.settings.masked)
        for report in run.reports
        for one in report.results
    )


def changes_of(run: Run) -> tuple[TableDelta, ...]:
    """Return a run's staged change of each table."""
    rebased = run.publication.replayed if run.publication is not None else ()
    return tuple(
        TableDelta(
            table=str(one.table),
            change=one.change,
            rows_added=one.rows,
            rows_removed=one.rows_removed,
            data_files=one.data_files,
            reason=one.reason,
            rebased=str(one.table) in rebased,
        )
        for one in run.staged
    )


def next_commands(run: Run, *, branch_exists: bool) -> Iterator[Command]:
    """Yield commands to run next, depending on how the run ended."""

    def command(purpose: str, *words: str) -> Command:
        return Command(purpose=purpose, command=shlex.join(("lakegate", *words)))

    if run.finished_at is None:
        yield command("See how it goes", "runs", run.run_id)
        if run.status == "running":
            yield command("Finish or undo it, if its process died", "recover", run.run_id)
    if branch_exists and run.status in ("rejected", "failed", "staged", "skipped"):
        yield command("See what the branch changes", "diff", run.target, run.branch)
        if run.status == "rejected":
            yield command("Publish it anyway", "publish", run.branch, "--accept", "REASON")
        elif run.staged:
            yield command("Publish it", "publish", run.branch)
        yield command("Discard it", "discard", run.branch)
    if run.status == "published":
        yield command("See what reverting it would do", "revert", run.run_id, "--dry-run")
        yield command("Revert it", "revert", run.run_id)
    if run.tables:
        yield command("See the table's runs", "runs", "--table", run.tables[0])


def file_name(uri: str) -> str:
    """Return the last part of a URI's path, decoded.

    Example:
        >>> file_name("file:///data/10%25%20off.csv"), file_name("s3://lake/in/2026 01.parquet")
        ('10% off.csv', '2026 01.parquet')
    """
    name = uri.rstrip("/").rpartition("/")[2]
    return unquote(name, errors="replace") if uri.startswith("file:") else name


def _steps(run: Run) -> Iterator[StepLine]:
    for step in run.steps:
        yield StepLine(
            name=step.name,
            started_at=step.started_at,
            starts_s=max((step.started_at - run.started_at).total_seconds(), 0.0),
            seconds=None if step.finished_at is None else (step.finished_at - step.started_at).total_seconds(),
            outcome=step.outcome,
        )


def _files(run: Run) -> Iterator[RunFile]:
    same = {known.file.uri: known.same_content_as for known in run.same_content_as}
    for file in run.request.batch.files if run.request is not None else ():
        yield _file(file, same_as=same.get(file.uri))
    for known in run.skipped_files:
        yield _file(known.file, known.same_file_as or known.same_content_as, skipped_by=known.run_id)


def _file(file: SourceFile, same_as: str | None, skipped_by: str | None = None) -> RunFile:
    return RunFile(
        uri=file.uri,
        name=file_name(file.uri),
        size_bytes=file.size_bytes,
        rows=file.rows,
        skipped_by=skipped_by,
        same_as=same_as,
    )


def _after(cursor: str) -> tuple[datetime, str]:
    time, _, run_id = cursor.partition(" ")
    try:
        at = datetime.fromisoformat(time)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC), searchable(run_id)
    except (ValueError, OverflowError):
        raise invalid_cursor(cursor) from None


class FileLine(Value):
    """A version of a source file that was published or is being ingested.

    Attributes:
        name: Last part of its path, decoded.
        size_bytes: Size in bytes; ``None``, as are the rows, if the journal knows the file only from a commit.
        published: Whether its rows are on ``main``.
        status: Status of the run; ``None`` if the journal doesn't know the run.
        at: When the run ended, or started if it hasn't ended.
    """

    name: str
    uri: str
    size_bytes: int | None = None
    rows: int | None = None
    table: str
    published: bool
    run_id: str
    status: RunStatus | None = None
    at: datetime | None = None


def list_files(
    model: ReadModel,
    *,
    search: str = "",
    table: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> ResultPage[FileLine]:
    """Return a page of source files, newest first.

    Args:
        search: Only files whose URI contains this text, in any case. Reads a million files at most; ``next`` continues
            from there.

    Returns:
        The page, without files of rejected and failed runs: :func:`list_runs` finds those.
    """
    if cursor is not None and not (cursor.isdecimal() and cursor.isascii()):
        raise invalid_cursor(cursor)
    size, pages = page_size(limit), model.journal.pages
    before = None if cursor is None else int(cursor[:18])
    name, table = searchable(search) or None, None if table is None else searchable(table)
    found, end = pages.files(name=name, table=table, limit=size + 1, before=before)
    shown = found[:size]
    runs = pages.lines({one.run_id for one in shown})
    last = shown[-1].number if len(found) > size else end
    return ResultPage[FileLine](
        items=tuple(_line(one, runs) for one in shown), next=None if last is None else str(last)
    )


def _line(record: FileRecord, runs: Mapping[str, RunLine]) -> FileLine:
    run = runs.get(record.run_id)
    is_known = bool(record.size_bytes or record.rows)
    return FileLine(
        name=file_name(record.uri),
        uri=record.uri,
        size_bytes=record.size_bytes if is_known else None,
        rows=record.rows if is_known else None,
        table=record.table,
        published=record.published,
        run_id=record.run_id,
        status=None if run is None else run.status,
        at=None if run is None else run.finished_at or run.started_at,
    )
