"""What an ingest would do (``ingest --dry-run``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.text import count, counted, size

if TYPE_CHECKING:
    from lakegate.model.plan import IngestPlan


def plan_payload(plan: IngestPlan) -> dict[str, Any]:
    """Return the plan for machines."""
    request = plan.request
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
    }


def show_plan(plan: IngestPlan, command: str) -> None:
    """Print the plan and ``command``, which carries it out."""
    request = plan.request
    batch = request.batch
    what = "append to" if plan.exists else "create"
    say(f"[bold]dry run[/]  would {what} [bold]{safe(request.table)}[/]: {counted(batch.rows, 'row')}; nothing written")
    partition = f", partitioned by {safe(', '.join(request.partition_by))}" if request.partition_by else ""
    say(f"  [dim]branch {safe(request.branch)}{partition}; when a check fails, the branch is {_fate(plan)}[/]", "")
    files = make_table("file", "rows", "size", right=("rows", "size"))
    for file in batch.files:
        add_row(files, file.uri, count(file.rows), size(file.size_bytes))
    show(files, indent=2)
    say("")
    columns = make_table("column", "type")
    for column in plan.table_schema.columns:
        add_row(columns, column.name, column.type + (" (required)" if column.required else ""))
    show(columns, indent=2)
    _show_checks(plan)
    next_commands(("Do it", command))


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
