"""A run's checks as JUnit XML, for CI systems: a suite per table, a test case per check.

The XML conforms to both schemas in use: that of Ant's task (windyroad's ``JUnit.xsd``), and that of Jenkins's xUnit
plugin (``junit-10.xsd``).
"""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.run import Run
from lakegate.model.words import count
from lakegate.progress import one_line, without_secrets
from lakegate.reports.page import CELL, Examples, clipped
from lakegate.run_text import describe_run, failing

_TEXT = 1000
_HOST = "localhost"
"""The schema requires one. The host that writes the report is of no interest."""


def junit(run: Run, *, examples: Examples | None = None) -> str:
    """Return a run's checks as JUnit XML.

    A failed check is a failure, with its failing rows; so is a rejected run whose report no longer exists. A failed
    check of severity ``warn``, or one that a person accepted, is skipped: it shows its message but doesn't fail the
    build. A run that couldn't finish is an error. One that is in progress and has no results yet is skipped.

    Args:
        examples: Renders example rows. Default: as the audit recorded them.
    """
    shown = examples or Examples()
    root = ET.Element("testsuites")
    for report in run.reports:
        if report.results:
            _table_suite(root, run, report, shown)
    if run.error is not None or not len(root):
        _run_suite(root, run)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _table_suite(root: ET.Element, run: Run, report: AuditReport, examples: Examples) -> None:
    accepted = run.accepted is not None
    failed = 0 if accepted else len(report.failures)
    skipped = len(report.warnings) + len(report.skipped) + (len(report.failures) if accepted else 0)
    suite = _start_suite(root, run, report.table, tests=len(report.results), failures=failed, skipped=skipped)
    suite.set("time", f"{report.seconds:.3f}")
    for result in report.results:
        case = ET.SubElement(suite, "testcase", name=_line(result.name), classname=_line(report.table), time="0")
        if result.verdict == "skipped":
            ET.SubElement(case, "skipped", message=_line(without_secrets(result.detail or "Nothing to check.")))
        if result.verdict == "fail":
            _failed_case(case, run, result, examples)
    _end_suite(suite, run)


def _failed_case(case: ET.Element, run: Run, result: CheckResult, examples: Examples) -> None:
    message = f"{count(result.failing_rows)}{failing(result)}"
    if result.severity == "warn":
        ET.SubElement(case, "skipped", message=f"Warning: {message}")
    elif run.accepted is not None:
        said = f"Accepted by {run.accepted.actor}: {run.accepted.reason}. {message}"
        ET.SubElement(case, "skipped", message=_line(said))
    else:
        failure = ET.SubElement(case, "failure", message=message, type=_line(result.check.partition("(")[0]))
        shown = examples.permitted(result)
        rows = shown.examples
        texts = (*shown.remarks, result.description, f"Owner: {result.owner}" if result.owner else None)
        lines = [_line(without_secrets(text)) for text in texts if text]
        lines += [_line(json.dumps({k: _value(v) for k, v in row.items()}, ensure_ascii=False)) for row in rows]
        if rows and result.failing_rows > len(rows):
            lines.append(f"… and {count(result.failing_rows - len(rows))} more")
        failure.text = "\n".join(lines)


def _run_suite(root: ET.Element, run: Run) -> None:
    """Add the run itself as a test case, because it has no results of checks or couldn't finish."""
    failed, rejected = run.error is not None, run.error is None and run.status == "rejected"
    is_open = run.error is None and run.finished_at is None
    suite = _start_suite(
        root, run, "run", tests=1, failures=int(rejected), errors=int(failed), skipped=int(is_open and not rejected)
    )
    suite.set("time", f"{run.seconds or 0:.3f}")
    case = ET.SubElement(
        suite, "testcase", name=_line(f"run {run.run_id}"), classname=_line(run.table or "run"), time="0"
    )
    if run.error is not None:
        error = ET.SubElement(case, "error", message=_line(without_secrets(run.error.message)), type=run.error.code)
        error.text = _line(without_secrets(run.error.hint or ""))
    elif rejected:
        failure = ET.SubElement(case, "failure", message=describe_run(run).happened, type="rejected")
        failure.text = _line(run.detail or "")
    elif is_open:
        ET.SubElement(case, "skipped", message=_line(describe_run(run).happened))
    _end_suite(suite, run)


def _start_suite(
    root: ET.Element, run: Run, name: str, *, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0
) -> ET.Element:
    suite = ET.SubElement(
        root,
        "testsuite",
        id=str(len(root)),
        name=_line(name),
        package="lakegate",
        hostname=_HOST,
        timestamp=f"{run.started_at:%Y-%m-%dT%H:%M:%S}",
        tests=str(tests),
        failures=str(failures),
        errors=str(errors),
        skipped=str(skipped),
    )
    about = {"run_id": run.run_id, "status": run.status, "branch": run.branch}
    if run.publication is not None:
        about["commit"] = run.publication.commit
    if run.quarantined:
        about["quarantined"] = str(run.quarantined)
    properties = ET.SubElement(suite, "properties")
    for key, value in about.items():
        ET.SubElement(properties, "property", name=key, value=_line(value))
    return suite


def _end_suite(suite: ET.Element, run: Run) -> None:
    status_text = describe_run(run)
    lines = [
        f"{status_text.title}: {status_text.happened} {status_text.means}",
        *(f"{what}: {line}" for what, line in status_text.commands),
    ]
    ET.SubElement(suite, "system-out").text = "\n".join(map(_line, lines))
    ET.SubElement(suite, "system-err")


def _value(value: object) -> object:
    return clipped(value, CELL) if isinstance(value, str) else value


def _line(text: str) -> str:
    """Return text on one line, without characters that XML 1.0 can't hold."""
    return one_line(clipped(text, _TEXT))
