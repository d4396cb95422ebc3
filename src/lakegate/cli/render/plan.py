"""What an ingest would do (``ingest --dry-run``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.skipped import skipped_payload
from lakegate.cli.render.text import count, counted, size

if TYPE_CHECKING:
    from lakegate.model.order import OnBusy, OnChanged
from lakegate.model.plan import IngestPlan


class Policies(NamedTuple):
    """What is done with files that are not new to the table."""

    on_changed: OnChanged
    on_busy: OnBusy


def plan_payload(plan: IngestPlan, policies: Policies) -> dict[str, Any]:
    """Return the plan for machines."""
    request = plan.request
    known = plan.known
    return {
        "table": str(request.table),
        "exists": plan.exists,
        "branch": request.branch,
        "format": request.batch.format,
        "files": [file.model_dump(mode="json") for file in request.batch.files],
        "rows": request.batch.rows,
        "size_bytes": request.batch.size_bytes,
        "columns": [column.model_dump(mode="json") for column in plan.table_schema.columns],
        "partition_by": list(request.partition_by),
        "checks": [
            {"name": check.name, "check": str(check), "severity": check.severity, "description": description}
            for check, description in zip(request.checks, plan.descriptions, strict=True)
        ],
        "on_failure": request.on_failure,
        "on_changed": policies.on_changed,
        "on_busy": policies.on_busy,
        "published_files": skipped_payload(known.published),
        "busy_files": skipped_payload(known.busy),
        "changed_files": skipped_payload(known.changed),
    }


def show_plan(plan: IngestPlan, policies: Policies, command: str) -> None:
    """Print the plan and ``command``, which carries it out."""
    request = plan.request
    say(f"[bold]dry run[/]  {_headline(plan, policies)}; nothing written")
    partition = f", partitioned by {safe(', '.join(request.partition_by))}" if request.partition_by else ""
    say(f"  [dim]branch {safe(request.branch)}{partition}; when a check fails, the branch is {_fate(plan)}[/]", "")
    _show_files(plan, policies)
    say("")
    columns = make_table("column", "type")
    for column in plan.table_schema.columns:
        add_row(columns, column.name, column.type + (" (required)" if column.required else ""))
    show(columns, indent=2)
    _show_checks(plan)
    next_commands(("Do it", command))


def _headline(plan: IngestPlan, policies: Policies) -> str:
    batch, known = plan.request.batch, plan.known
    table = f"[bold]{safe(plan.request.table)}[/]"
    if known.changed and policies.on_changed == "refuse":
        return f"would [red]refuse[/] {counted(len(known.changed), 'file')} published to {table} with other content"
    skipped = {one.file.uri for one in (*known.published, *(known.busy if policies.on_busy == "skip" else ()))}
    rows = sum(file.rows for file in batch.files if file.uri not in skipped)
    if len(skipped) == len(batch.files):
        return f"would skip all {counted(len(skipped), 'file')} for {table}"
    what = f"would {'append to' if plan.exists else 'create'} {table}: {counted(rows, 'row')}"
    return what + (f", {len(skipped):,} of {counted(len(batch.files), 'file')} skipped" if skipped else "")


def _show_files(plan: IngestPlan, policies: Policies) -> None:
    fates = _fates(plan, policies)
    titles = ("file", "rows", "size", *(("what is known",) if fates else ()))
    files = make_table(*titles, right=("rows", "size"))
    for file in plan.request.batch.files:
        cells = (file.uri, count(file.rows), size(file.size_bytes), fates.get(file.uri, ("new", None))[0])
        add_row(files, *cells[: len(titles)], style=fates.get(file.uri, ("new", None))[1])
    show(files, indent=2)


_CHANGED = {
    "refuse": ("would be refused", "red"),
    "append": ("its rows would be added to those", "yellow"),
    "replace": ("its rows would replace those", "yellow"),
}
_BUSY = {"wait": ("would be waited for", "yellow"), "skip": ("would be skipped", "dim")}


def _fates(plan: IngestPlan, policies: Policies) -> dict[str, tuple[str, str | None]]:
    """Return, for each file that is not new, what is known of it and would become of it, and a style."""
    fates: dict[str, tuple[str, str | None]] = {}
    for one in plan.known.changed:
        fate, style = _CHANGED[policies.on_changed]
        fates[one.file.uri] = (f"published by run {one.run_id} with other content: {fate}", style)
    for one in plan.known.busy:
        fate, style = _BUSY[policies.on_busy]
        fates[one.file.uri] = (f"run {one.run_id} is at it: {fate}", style)
    for one in plan.known.published:
        fates[one.file.uri] = (f"published by run {one.run_id}: would be skipped", "dim")
    return fates


def _show_checks(plan: IngestPlan) -> None:
    if not plan.request.checks:
        say("", "  [yellow]No checks: whatever the files hold would be published.[/]")
        return
    say("")
    checks = make_table("check", "severity", "meaning")
    for check, description in zip(plan.request.checks, plan.descriptions, strict=True):
        add_row(checks, str(check), check.severity, description)
    show(checks, indent=2)


def _fate(plan: IngestPlan) -> str:
    return "kept" if plan.request.on_failure == "keep" else "dropped"
