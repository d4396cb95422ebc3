"""JUnit XML: how each outcome is reported, and that it conforms to the schemas that CI systems use."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from lakegate.model.checks import Check
from lakegate.model.run import Acceptance, Run
from lakegate.reports.junit import junit
from lakegate.reports.page import Examples
from support.cli_support import FAILED, FAILED_RUN, PUBLICATION, PUBLISHED, REJECTED, SKIPPED, START, make_run, report
from support.cli_support import result as checked

# What windyroad's JUnit.xsd and Jenkins's junit-10.xsd both allow, in this order.
_CHILDREN = {
    "testsuites": ["testsuite*"],
    "testsuite": ["properties", "testcase*", "system-out", "system-err"],
    "properties": ["property*"],
    "testcase": ["skipped|error|failure?"],
}
_REQUIRED = {
    "testsuite": {"id", "name", "package", "hostname", "timestamp", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
}


def parsed(text: str) -> ET.Element:
    """Parse the XML and validate it."""
    root = ET.fromstring(text)
    for element in root.iter():
        assert set(element.attrib) == _REQUIRED.get(element.tag, set()), element.tag
        pattern = "".join(
            f"(?:<(?:{one.rstrip('*?')})>){one[-1] if one[-1] in '*?' else ''}"
            for one in _CHILDREN.get(element.tag, [])
        )
        assert re.fullmatch(pattern, "".join(f"<{child.tag}>" for child in element)), element.tag
    for suite in root:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[count]) == len(suite.findall(f"testcase/{tag}"))
        assert float(suite.attrib["time"]) >= 0
    return root


def outcomes(run: Run) -> dict[str, str]:
    cases = parsed(junit(run)).iter("testcase")
    return {case.attrib["name"]: case[0].tag if len(case) else "passed" for case in cases}


def test_a_failed_check_is_a_failure_with_its_rows_and_a_warning_is_not() -> None:
    assert outcomes(REJECTED) == {
        "not_null(passenger_count)": "failure",
        "in_range(trip_distance, min=0, max=200)": "skipped",
    }
    failure = parsed(junit(REJECTED)).find(".//failure")
    assert failure is not None
    assert failure.attrib == {"message": "1,003 of 100,000 rows fail (1.00 %)", "type": "not_null"}
    rows = (failure.text or "").splitlines()
    assert rows[0].startswith('{"passenger_count": null, "trip_id": 0')
    assert rows[-1] == "… and 1,000 more"
    assert "trip_id" not in junit(REJECTED, examples=Examples(rows=0))


FORGOTTEN = REJECTED.model_copy(update={"reports": (), "detail": "Its steps, reports and alerts were deleted."})
"""A rejected run of which the journal no longer has the report."""


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (PUBLISHED, "passed"),
        (SKIPPED, "passed"),
        (FAILED_RUN, "error"),
        (FORGOTTEN, "failure"),
        (make_run("planned", finished_at=None), "skipped"),
    ],
)
def test_a_run_ends_as_a_build_would(run: Run, outcome: str) -> None:
    assert set(outcomes(run).values()) == {outcome}


def test_what_a_person_accepted_does_not_fail_a_build() -> None:
    accepted = Acceptance(reason="known", actor="ada", at=START)
    run = make_run("published", publication=PUBLICATION, reports=(FAILED,), accepted=accepted)
    assert set(outcomes(run).values()) == {"skipped"}
    assert 'message="Accepted by ada: known. 1,003 of' in junit(run)


def test_text_that_xml_cannot_hold_is_escaped() -> None:
    check = Check(kind="not_null", columns=("]]>\x00\ud800\ufffe<b>",))
    text = junit(make_run("rejected", reports=(report(checked(check, 1, [{"a": "\x0b" * 5000}])),)))
    parsed(text)
    text.encode()
