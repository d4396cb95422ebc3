"""The page of one run: its outcome, checks with failing rows, steps and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.run import Run, RunStep
from lakegate.model.words import count, counted, duration, size
from lakegate.progress import redact, without_secrets
from lakegate.reports.page import (
    Examples,
    Html,
    badge,
    bar,
    clipped,
    commands,
    facts,
    left_out,
    page,
    span,
    status,
    table,
    tag,
    when,
)
from lakegate.reports.status_text import Tone, change_of, checks_of, describe_run, failing, rows_of

_FILES = 50
_OPEN = 25
"""Most passed checks that are shown unfolded."""
_TEXT = 300
_SHORT = 12
_PROVEN: dict[str, str] = {"manifest": "file metrics", "scan": "rows read", "journal": "earlier runs"}


def run_page(run: Run, *, examples: Examples | None = None, link: str | None = None) -> str:
    """Return the page of a run, as one file that loads nothing.

    Args:
        examples: Renders example rows. Default: as the audit recorded them.
        link: URL of the run on the dashboard.
    """
    shown = examples or Examples()
    status_text = describe_run(run)
    kind = {"ingest": "Ingest", "branch": "Branch"}.get(run.kind, run.kind.capitalize())
    name = f"{kind} {run.name}" if run.name else kind
    return page(
        f"{status_text.title}: {run.table or 'a transaction'} · lakegate",
        tag("p", f"{name} · run ", tag("code", run.run_id), class_="eyebrow"),
        tag("h1", run.table or "No table"),
        status(status_text),
        _facts(run),
        tag(
            "section",
            tag("h2", "What to do next"),
            commands(status_text.commands),
            tag("p", tag("a", "See this run on the dashboard", href=link)) if link else None,
        ),
        _error(run),
        _tables(run),
        [_report(report, shown, alone=len(run.reports) == 1) for report in run.reports],
        _steps(run.steps),
        _files(run),
        _alerts(run),
    )


def _facts(run: Run) -> Html:
    publication = run.publication
    return facts(
        (
            ("Rows", count(rows_of(run))),
            ("Checks", _checks(run)),
            ("Took", "" if run.seconds is None else duration(run.seconds)),
            ("Started", when(run.started_at)),
            ("Finished", when(run.finished_at)),
            (
                "Branch",
                [tag("code", run.branch), " ", "(kept)" if run.branch_kept else "(deleted)"] if run.branch else "",
            ),
            ("Commit", tag("code", publication.commit[:_SHORT], title=publication.commit) if publication else ""),
            ("Rebased", ", ".join(publication.replayed) if publication else ""),
            ("Run by", run.orchestrator or ""),
            ("Accepted by", run.accepted.actor if run.accepted else ""),
            ("Reverts", ", ".join(run.reverts)),
            ("Note", run.detail or ""),
        ),
        long=("Branch", "Reverts", "Note"),
    )


def _checks(run: Run) -> str:
    total = checks_of(run)
    if not total:
        return ""
    failed, warned = len(run.failures), sum(len(report.warnings) for report in run.reports)
    skipped = sum(len(report.skipped) for report in run.reports)
    parts = [f"{failed} failed"] * bool(failed) + [counted(warned, "warning")] * bool(warned)
    parts += [f"{skipped} skipped"] * bool(skipped)
    return f"{total} ({', '.join(parts) or 'all passed'})"


def _error(run: Run) -> Html | None:
    if run.error is None:
        return None
    # The box at the top has its message.
    hint = without_secrets(run.error.hint) if run.error.hint else None
    return tag(
        "section",
        tag("h2", "Why it failed"),
        tag("p", tag("code", run.error.code)),
        tag("p", hint) if hint else None,
    )


def _tables(run: Run) -> Html | None:
    if len(run.staged) < 2 and not run.undone:  # the page's heading names a single table
        return None
    if run.undone:
        rows = [
            (
                one.table,
                "unknown" if one.rows is None else f"{one.rows:+,}",
                f"{one.data_files:+,}",
                "dropped" * one.dropped,
            )
            for one in run.undone
        ]
        columns = ("Table", "Rows", "Data files", "")
    else:
        rows = [(str(one.table), count(one.rows), count(one.data_files), change_of(one)) for one in run.staged]
        columns = ("Table", "Rows added", "Files added", "Change")
    return tag("section", tag("h2", "Tables"), table(columns, rows, label="Tables", numbers=(1, 2)))


def _report(report: AuditReport, examples: Examples, *, alone: bool) -> Html | None:
    if not report.results:
        return None
    passed = [result for result in report.results if result.verdict != "fail"]
    title = "Checks" if alone else f"Checks of {report.table}"
    return tag(
        "section",
        tag("h2", title),
        [_failing(result, examples) for result in (*report.failures, *report.warnings)],
        [_quarantined(result, examples) for result in report.quarantined],
        _passed(passed),
    )


def _failing(result: CheckResult, examples: Examples) -> Html:
    tone: Tone = "warn" if result.severity == "warn" else "bad"
    columns, description = ", ".join(result.columns), _description(result)
    remarks = examples.permitted(result).remarks
    about = tag(
        "span", f"{'Columns' if len(result.columns) > 1 else 'Column'} ", tag("code", clipped(columns, _TEXT)), " · "
    )
    return tag(
        "article",
        tag(
            "header",
            tag("h3", clipped(result.name, _TEXT)),
            badge(tone, "Failed" if tone == "bad" else "Warning"),
        ),
        tag("p", about if columns else None, tag("code", clipped(result.check, _TEXT)), class_="small soft")
        if columns or result.check != result.name
        else None,
        tag("p", tag("b", count(result.failing_rows)), failing(result)),
        bar(result.failing_rows, result.total_rows, tone),
        [tag("p", clipped(without_secrets(text), 2 * _TEXT), class_="small") for text in remarks],
        tag("p", clipped(without_secrets(description), 2 * _TEXT), class_="small soft") if description else None,
        examples.of(result, tone),
        class_=f"card {tone}",
    )


def _quarantined(result: CheckResult, examples: Examples) -> Html:
    return tag(
        "article",
        tag("header", tag("h3", clipped(result.name, _TEXT)), badge("warn", "Quarantined")),
        tag("p", tag("code", clipped(result.check, _TEXT)), class_="small soft"),
        tag("p", tag("b", counted(result.quarantined, "row")), " of the batch set aside; the others pass."),
        examples.of(result, "warn"),
        class_="card warn",
    )


def _description(result: CheckResult) -> str:
    """Return a check's description, owner and tags."""
    owner = f"Owner: {result.owner}." if result.owner else ""
    tags = f"Tags: {', '.join(result.tags)}." if result.tags else ""
    return " ".join(filter(None, (result.description, owner, tags)))


def _verdict(result: CheckResult) -> Html:
    if result.verdict == "skipped":
        return badge("warn", "Skipped")
    if result.quarantined:
        return tag("span", badge("good", "Passed"), f" {count(result.quarantined)} quarantined")
    if result.failing_rows:
        return tag("span", badge("good", "Passed"), f" {count(result.failing_rows)} tolerated")
    return badge("good", "Passed")


def _passed_summary(results: Sequence[CheckResult]) -> str:
    skipped = sum(result.verdict == "skipped" for result in results)
    passed = [f"{counted(len(results) - skipped, 'check')} passed"] * (len(results) > skipped)
    return ", ".join([*passed, *[f"{counted(skipped, 'check')} skipped"] * bool(skipped)])


def _passed(results: Sequence[CheckResult]) -> Html | None:
    if not results:
        return None
    rows = [
        (
            tag("code", clipped(result.check, _TEXT)),
            _verdict(result),
            count(result.total_rows),
            _PROVEN.get(result.evidence, result.evidence),
        )
        for result in results
    ]
    shown = table(("Check", "Verdict", "Rows", "Proven by"), rows, label="Passed checks", numbers=(2,), wide=(0,))
    summary = tag("summary", _passed_summary(results))
    return tag("details", summary, shown, open=len(results) <= _OPEN)


def _steps(steps: Sequence[RunStep]) -> Html | None:
    if not steps:
        return None
    first = steps[0].started_at
    last = max(step.finished_at or step.started_at for step in steps)
    whole = (last - first).total_seconds()
    return tag(
        "section",
        tag("h2", "Steps"),
        table(
            ("Step", "When", "Took", "Started", ""),
            [_step(step, first, whole) for step in steps],
            label="Steps",
            numbers=(2,),
        ),
    )


def _step(step: RunStep, first: datetime, whole: float) -> tuple[str | Html | None, ...]:
    began = (step.started_at - first).total_seconds()
    ended = began if step.finished_at is None else (step.finished_at - first).total_seconds()
    tone: Tone | None = "bad" if step.outcome == "failed" else None
    words = {"failed": badge("bad", "Failed"), "running": badge("idle", "In progress")}
    took = "" if step.finished_at is None else duration(ended - began)
    return step.name, span(began, ended, whole, tone), took, when(step.started_at), words.get(step.outcome)


def _files(run: Run) -> Html | None:
    rows = list(_file_rows(run))
    if not rows:
        return None
    shown = table(("File", "Rows", "Size", ""), rows[:_FILES], label="Source files", numbers=(1, 2), wide=(0,))
    left = len(rows) - _FILES
    more = left_out(left, f"{counted(left, 'more file')}: lakegate runs {run.run_id}")
    return tag("section", tag("h2", "Source files"), shown, more)


def _file_rows(run: Run) -> Iterator[tuple[str | Html, str, str, str]]:
    written = run.request.batch.files if run.request else ()
    owners = {known.file.uri: known.run_id for known in run.skipped_files}
    for file in written:
        note = f"skipped: run {owners[file.uri]} has it" if file.uri in owners else ""
        yield tag("code", clipped(redact(file.uri), _TEXT)), count(file.rows), size(file.size_bytes), note
    uris = {file.uri for file in written}
    for known in run.skipped_files:
        if known.file.uri not in uris:
            file, note = known.file, f"skipped: run {known.run_id} has it"
            yield tag("code", clipped(redact(file.uri), _TEXT)), count(file.rows), size(file.size_bytes), note


def _alerts(run: Run) -> Html | None:
    if not run.notifications:
        return None
    rows = [(one.channel, one.event, one.outcome, when(one.at), one.reason or "") for one in run.notifications]
    columns = ("Channel", "About", "Outcome", "At", "")
    return tag("section", tag("h2", "Alerts"), table(columns, rows, label="Alerts", wide=(4,)))
