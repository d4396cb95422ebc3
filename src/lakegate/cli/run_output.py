"""Runs as text and JSON: what ingest, publish, revert and the list of runs print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakegate.cli.check_output import check_payload, show_failing, show_notes, show_quarantined, summary
from lakegate.cli.output import Styled, clip, echo_json, next_commands, safe, say, say_wrapped, show_rows, width_or
from lakegate.errors import LakegateError, NotFoundError
from lakegate.model.identifiers import rows_query
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import changed_rows, published_tables
from lakegate.model.words import age, count, counted, duration, moment
from lakegate.progress import one_line
from lakegate.run_text import change_of, failing_rows, rows_of, source_rows

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.lake import Lake
    from lakegate.model.batch import Batch, KnownFile
    from lakegate.model.run import Publication, Run, StagedTable

Statuses = Mapping[str, str | None]
"""Status by run id, ``None`` if it's unknown. Runs that aren't in it are published."""
NO_STATUSES: Statuses = {}
_ON_MAIN = ("published", "reverted")
_SHOWN = 5
_LONGEST_NOTE = 60
STYLES = {
    "published": "green",
    "rejected": "red",
    "failed": "red",
    "skipped": "yellow",
    "discarded": "yellow",
    "reverted": "yellow",
}


def run_payload(run: Run) -> dict[str, Any]:
    """Return a run as ``ingest --output json`` prints it (``schemas/ingest-result.schema.json``)."""
    published = run.publication
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "table": run.table,
        "tables": list(run.tables),
        "status": run.status,
        "mode": run.request.mode.name if run.request else None,
        "branch": run.branch if run.branch_kept else None,
        "commit": published.commit if published else None,
        "replayed": list(published.replayed) if published else [],
        "rows": {
            "source": source_rows(run),
            "published": published.rows if published else 0,
            "removed": published.rows_removed if published else 0,
            "quarantined": published.quarantined if published else 0,
        },
        "skipped_files": skipped_payload(run.skipped_files),
        "left_out": left_out_payload(run.request.batch if run.request else None),
        "checks": [
            {"table": report.table, **check_payload(result)} for report in run.reports for result in report.results
        ],
        "accepted": run.accepted,
        "opening": run.opening,
        "seconds": run.seconds,
    }


def journal_payload(run: Run) -> dict[str, Any]:
    """Return a run as ``runs --output json`` prints it, with everything that the journal records."""
    files = run.request.batch.files if run.request else ()
    payload = run_payload(run)
    if run.publication is not None and run.rows_published is None:
        payload["rows"] |= {"published": None, "removed": None}
    return {
        **payload,
        "name": run.name,
        "orchestrator": run.orchestrator,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "base": run.base,
        "files": list(run.request.batch.uris) if run.request else [],
        "version_ids": {file.uri: file.version_id for file in files if file.version_id},
        "actions": run.actions,
        "steps": run.steps,
        "reverts": list(run.reverts),
        "undone": run.undone,
        "reverted_by": run.reverted_by,
        "detail": run.detail,
        "error": run.error,
        "notifications": run.notifications,
    }


def show_run(app: App, run: Run, statuses: Statuses = NO_STATUSES) -> None:
    """Print how a run ended and what to do next.

    Args:
        statuses: Statuses of the runs that own the files it skipped.
    """
    show_outcome(run, statuses)
    show_next(app, run)


def show_result(app: App, run: Run) -> None:
    """Print the run that a command made, as text or JSON."""
    app.remember_outcome(run)
    if app.json:
        echo_json(run_payload(run))
    else:
        show_run(app, run)


def show_outcome(run: Run, statuses: Statuses) -> None:
    """Print how a run ended."""
    say(f"[bold {STYLES.get(run.status, 'cyan')}]{run.status}[/]  {headline(run, statuses)}")
    mode = "" if run.request is None or run.request.mode.appends else f", {run.request.mode.name}"
    took = "" if run.seconds is None else f", {duration(run.seconds)}"
    checks = f", {safe(summary(*run.reports))}" if run.reports else ""
    say_wrapped(f"[dim]run {run.run_id}{mode}{took}{checks}[/]")
    if run.status == "rejected" and run.reports and run.detail:
        say_wrapped(f"[yellow]{safe(run.detail)}[/]")
    if run.publication is not None and run.publication.replayed:
        say(f"  rebased onto newer changes to {safe(', '.join(run.publication.replayed))}; no data was rewritten")
    for staged in run.staged:
        say(*(f"  [yellow]{safe(staged.table)}: {safe(change)}[/]" for change in staged.schema_changes))
    if run.accepted is not None:
        say(f"  [yellow]accepted by {safe(run.accepted.actor)}: {safe(run.accepted.reason)}[/]")
    for action in run.actions:
        say(f"  [dim]{action.action} by {safe(action.actor)}[/]")
    if run.status != "skipped":
        show_skipped(run, statuses)
    if run.request is not None:
        show_left_out(run.request.batch)
    if len(tables := run.staged if run.quarantined else published_tables(run.staged)) > 1:
        _show_tables(run, tables)
    _show_undone(run)
    for report in run.reports:
        of = f" of {safe(report.table)}" if len(run.reports) > 1 else ""
        show_failing(f"Failed checks{of}", report.failures, "red")
        show_failing(f"Warnings{of}", report.warnings, "yellow")
        show_quarantined(report.quarantined)
        show_notes(report)


def show_next(app: App, run: Run) -> None:
    """Print the commands to type next."""
    if run.status == "rejected":
        _after_rejection(app, run)
    elif run.status == "published":
        _after_publication(app, run)
    elif run.status == "skipped" and run.tables:  # a transaction may have changed none
        next_commands(("See earlier runs of the table", app.command("runs", "--table", run.tables[0])))


def show_runs(runs: Sequence[Run], superseded: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print a list of runs. On a terminal, show how long ago each started, otherwise the time.

    Args:
        superseded: Those that were tried again, each with the later run.
    """
    now, rows = datetime.now(UTC), []
    for run in runs:
        started = age((now - run.started_at).total_seconds()) if width_or(0) else moment(run.started_at)
        took = "" if run.seconds is None else duration(run.seconds)
        notes = [f"superseded by {superseded[run.run_id]}"] if run.run_id in superseded else _notes(run)
        cells = (run.run_id, started, run.kind, run.table, run.status, _rows(run), took, ", ".join(notes))
        rows.append(Styled(cells, STYLES.get(run.status)))
    columns = ("run", "started", "kind", "table", "status", "rows", "took", "notes")
    numbers = ("rows", "took")
    drop = ("took", "notes", "rows", "started")
    show_rows(columns, rows, right=numbers, whole=("started", "kind", "status", *numbers), drop=drop, cut="notes")


def headline(run: Run, statuses: Statuses = NO_STATUSES) -> str:
    """Return one line of markup: the table and the outcome."""
    table = f"[bold]{safe(run.table or run.name or run.kind)}[/]"
    rows = source_rows(run)
    batch = "" if rows is None else f" {counted(rows, 'row')}"
    if run.publication is not None:
        reverted = "" if run.reverted_by is None else f"; reverted by run {run.reverted_by}"
        return f"{table}  {published_text(run, run.publication)} in commit {run.publication.commit[:12]}{reverted}"
    if run.status == "rejected" and run.reports:
        failed, all_of = len(run.failures), sum(len(report.results) for report in run.reports)
        return f"{table}  {failed} of {counted(all_of, 'check')} failed; none of{batch} was published"
    if run.status == "skipped" and run.skipped_files:
        return f"{table}  {safe(_skipped_text(run, statuses))}"
    return f"{table}  {safe(run.detail or batch.strip())}"


def published_text(run: Run, publication: Publication) -> str:
    """Return what a run's commit changed."""
    if run.kind in ("maintenance", "revert", "restore"):
        return f"{run.kind} of {counted(len(publication.tables), 'table')}"
    if run.staged and all(one.change == "metadata" for one in run.staged):
        return "columns changed" if any(one.schema_changes for one in run.staged) else "redefined"
    if run.rows_published is None:
        return "an unknown number of rows"
    aside = f", {publication.quarantined:,} quarantined" if publication.quarantined else ""
    return changed_rows(publication.rows, publication.rows_removed) + aside


def _rows(run: Run) -> str:
    published = run.publication
    if run.status == "skipped":
        return ""
    if published is None or published.rows_removed == 0:
        return count(rows_of(run))
    return changed_rows(published.rows, published.rows_removed, short=True)


def _notes(run: Run) -> list[str]:
    notes = [] if run.name is None else [run.name]
    notes += [f"{result.name} failed" for result in run.failures]
    notes += [str(change) for staged in run.staged for change in staged.schema_changes]
    if run.accepted is not None:
        notes.append(f"accepted by {run.accepted.actor}")
    if run.reverts and run.status not in ("failed", "rejected"):
        notes.append(f"undid {run.reverts[0]}" + (f" and {len(run.reverts) - 1} more" if len(run.reverts) > 1 else ""))
    if run.skipped_files:
        notes.append(f"{counted(len(run.skipped_files), 'file')} skipped")
    if run.publication is not None and run.publication.quarantined:
        notes.append(f"{counted(run.publication.quarantined, 'row')} quarantined")
    if run.publication is not None and run.publication.replayed:
        notes.append("rebased")
    if run.reverted_by is not None:
        notes.append(f"by {run.reverted_by}")
    if run.error is not None:
        notes.append(clip(one_line(run.error.message), _LONGEST_NOTE))
    return notes


def _show_tables(run: Run, tables: Sequence[StagedTable]) -> None:
    replayed = run.publication.replayed if run.publication else ()
    removes = any(staged.rows_removed != 0 for staged in tables)
    numbers = ("rows added", *(["removed"] if removes else []), "files added")
    rows = []
    for staged in tables:
        change = change_of(staged) + (", rebased" if str(staged.table) in replayed else "")
        removed = ["?" if staged.rows_removed is None else count(staged.rows_removed)] if removes else []
        rows.append((str(staged.table), change, count(staged.rows), *removed, count(staged.data_files)))
    say("")
    show_rows(("table", "change", *numbers), rows, right=numbers, indent=2)


def _show_undone(run: Run) -> None:
    if not run.undone:
        return
    rows = (
        (
            undone.table,
            "unknown" if undone.rows is None else f"{undone.rows:+,}",
            f"{undone.data_files:+,}",
            "dropped" if undone.dropped else "",
        )
        for undone in run.undone
    )
    say("")
    show_rows(("table", "rows", "data files", ""), rows, right=("rows", "data files"), indent=2)


def _after_publication(app: App, run: Run) -> None:
    dropped = {undone.table for undone in run.undone if undone.dropped}
    commands = [
        (f"Query {table if len(run.tables) > 1 else 'the table'}", app.command("query", rows_query(table, limit=10)))
        for table in run.tables
        if table not in dropped and not (is_quarantine(table) and len(run.tables) > 1)
    ]
    if run.quarantined:
        commands.append(("See the quarantined rows", app.command("quarantine", "show", run.tables[0])))
    next_commands(*commands, ("See the commit", app.command("log", "--limit", "5")))


def _after_rejection(app: App, run: Run) -> None:
    branch = run.branch
    if not run.branch_kept:
        say_wrapped("", f"Branch {safe(branch)} and the batch were dropped.", indent=0)
        return
    until = f" until {moment(run.branch_until)}" if run.branch_until else ""
    say_wrapped("", f"The batch stays on branch [bold]{safe(branch)}[/]{until}; main is unchanged.", indent=0)
    next_commands(
        *((purpose, app.command("query", query, "--ref", branch)) for purpose, query in failing_rows(run)),
        ("See what the branch changes", app.command("diff", "main", branch)),
        ("Discard it", app.command("discard", branch)),
        ("Or publish it anyway", app.command("publish", branch, "--accept", "REASON")),
    )


def skipped_payload(files: Sequence[KnownFile]) -> list[dict[str, Any]]:
    """Return files of other runs for JSON output."""
    return [{"file": known.file.uri, "run_id": known.run_id} for known in files]


def statuses_of(lake: Lake, files: Sequence[KnownFile]) -> Statuses:
    """Return the statuses of the runs that own these files."""
    return {run_id: _status(lake, run_id) for run_id in _owners(files)}


def _status(lake: Lake, run_id: str) -> str | None:
    try:
        return lake.run(run_id).status
    except NotFoundError:
        # A rebuilt journal has the file from main's history, so its run was published.
        return "published"
    except LakegateError:
        # The ingest succeeded, and must not fail because this is unknown.
        return None


def _skipped_text(run: Run, statuses: Statuses) -> str:
    """Return why there was nothing to do."""
    owners = list(_owners(run.skipped_files))
    if len(owners) == 1:
        return f"already {_whose(owners[0], statuses)}"
    return f"nothing to do: {len(owners)} other runs have all {len(run.skipped_files):,} files"


def left_out_payload(batch: Batch | None) -> list[dict[str, str]]:
    """Return the files in the given folders that weren't read, for JSON output."""
    return [{"file": one.uri, "reason": one.reason} for one in (batch.left_out if batch else ())]


def show_left_out(batch: Batch) -> None:
    """Print which files in the given folders weren't read, and why."""
    for reason, some in groupby(sorted(batch.left_out, key=lambda one: one.reason), key=lambda one: one.reason):
        uris = [one.uri for one in some]
        names = ", ".join(unquote(uri.rstrip("/").rpartition("/")[2]) for uri in uris[:_SHOWN])
        more = ", …" if len(uris) > _SHOWN else ""
        say_wrapped(f"  [yellow]{counted(len(uris), 'file')} not read[/]: {safe(names)}{more} ({safe(reason)})")


def show_skipped(run: Run, statuses: Statuses) -> None:
    """Print how many of the run's files were skipped, by the run that owns them."""
    if not run.skipped_files:
        return
    uris = {known.file.uri for known in run.skipped_files}
    given = uris | set(run.request.batch.uris if run.request else ())
    owners = _owners(run.skipped_files)
    for run_id, number in owners.most_common(_SHOWN):
        say(f"  [yellow]{number:,} of {counted(len(given), 'file')} skipped[/]: {safe(_whose(run_id, statuses))}")
    if len(owners) > _SHOWN:
        say(f"  [dim]… {counted(len(uris), 'file')} of {len(owners)} runs in total; --output json lists them[/]")


def _owners(files: Sequence[KnownFile]) -> Counter[str]:
    return Counter(known.run_id for known in files)


def _whose(run_id: str, statuses: Statuses) -> str:
    status = statuses.get(run_id, "published")
    if status is None:
        return f"owned by run {run_id}"
    return f"published by run {run_id}" if status in _ON_MAIN else f"left to run {run_id}, which is {status}"


def show_change(app: App, run: Run, nothing: str = "") -> None:
    """Print how a run that changed a table ended; if it had nothing to change, the markup ``nothing``."""
    app.remember_outcome(run)
    if app.json:
        echo_json(journal_payload(run))
    elif nothing and run.status == "skipped":
        say(nothing)
    else:
        show_run(app, run)


def show_revert(app: App, run: Run, word: str, what: str) -> None:
    """Print what a revert or another change of whole tables did: ``word``, such as "reverted", and ``what``."""
    if run.publication is not None:
        app.remember_outcome(run)
    if app.json:
        echo_json(journal_payload(run))
        return
    if run.publication is None:
        say(f"[bold yellow]nothing changed[/]  {safe(run.detail or '')}")
    else:
        say(
            f"[bold green]{word}[/]  {safe(what)} in commit {run.publication.commit[:12]}",
            f"  [dim]run {run.run_id}[/]",
        )
    for reverted in run.reverts[:_SHOWN]:
        say(f"  [dim]undoes run[/] {safe(reverted)}")
    if hidden := len(run.reverts[_SHOWN:]):
        say(f"  [dim]… and {counted(hidden, 'run')} more; --output json lists them[/]")
    _show_undone(run)
    if run.publication is not None:
        next_commands(
            ("See the commit", app.command("log", "--limit", "5")),
            ("See the run", app.command("runs", run.run_id)),
        )
