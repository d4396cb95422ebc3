"""The page of a run: its text, that data can't break out of its cell, and how it looks in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakegate.model.checks import Check
from lakegate.model.run import Acceptance, Run, RunError, UndoneTable
from lakegate.model.schema import MASK
from lakegate.reports.page import Examples, run_page
from support.browser import CHROMIUM, chromium
from support.cli_support import (
    FAILED,
    PASSED,
    PUBLICATION,
    PUBLISHED,
    REJECTED,
    SKIPPED,
    START,
    STEPS,
    known,
    make_run,
    report,
    result,
    staged,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE: dict[str, Any] = {
    "id": 7,
    "<script>alert(1)</script>": "</td></table><script>document.title='owned'</script>",
    "turned": "\u202eevil\u0007\x1b[31m",
    "hebrew": "\u05e9\u05dc\u05d5\u05dd",
    "long": "x" * 10_000,
    "\N{GRINNING FACE} emoji": "\N{ELEPHANT}",
    '" onmouseover="alert(1)': None,
    "lone": "\ud800",
}
OWN = '" onmouseover="alert(1)'
HOSTILE_RUN = make_run(
    "rejected",
    branch_kept=True,
    steps=STEPS[:2],
    reports=(report(result(Check(kind="not_null", columns=(OWN,)), 1003, [HOSTILE] * 10), *PASSED.results),),
)


class _Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: str) -> str:
    """The text of a page, as a reader sees it."""
    body = page.partition("<body>")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_nothing_in_data_leaves_its_cell() -> None:
    page = run_page(HOSTILE_RUN)
    page.encode()
    found = _Elements(page)
    assert "script" not in found.tags
    assert not {name for name in found.attributes if name.startswith("on")}
    assert "style" not in found.attributes  # the policy allows none
    assert not {"href", "src"} & found.attributes
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "x" * 121 not in page
    assert "(9,880 more characters)" in page
    assert page.count("\N{ELEPHANT}") == 5


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (PUBLISHED, ("Published", "100,000 rows were added to nyc.trips.", "All 2 checks passed.", "lakegate revert")),
        (REJECTED, ("Rejected", "1 of 2 checks failed, so nothing was published.", "lakegate discard wap/nyc.trips_")),
        (REJECTED, ("1,003 of 100,000 rows fail (1.00 %)", "2 of 100,000 rows fail (&lt;0.01 %)", "1,000 more rows")),
        (SKIPPED, ("Nothing to do", "no rows; nothing to publish", "main is unchanged.")),
        (make_run("skipped", skipped_files=(known("a"),)), ("ingested by run 20260130T010101-99999999 before",)),
        (make_run("planned", finished_at=None, steps=STEPS[:1]), ("Running", "is in progress: write.")),
        (make_run("discarded"), ("Discarded", "was discarded")),
        (
            make_run("published", request=None, publication=PUBLICATION.model_copy(update={"rows": 0})),
            ("nyc.trips was changed. The journal has only the commit",),
        ),
        (make_run("reverted", publication=PUBLICATION, reverted_by="r2"), ("Reverted", "later reverted by run r2.")),
        (
            make_run("failed", error=RunError(code="outcome-unknown", message="It went away.", hint="Look again.")),
            ("Failed", "It went away.", "may or may not have happened", "Look again."),
        ),
        (
            make_run(
                "published",
                publication=PUBLICATION,
                reports=(FAILED,),
                accepted=Acceptance(reason="known gap", actor="ada", at=START),
            ),
            ("Published despite failed checks", "ada published it anyway: known gap", "2e1cfa82b035"),
        ),
        (
            make_run(
                "published",
                kind="revert",
                publication=PUBLICATION,
                undone=(UndoneTable(table="nyc.trips", rows=-5, data_files=-1, dropped=True),),
            ),
            ("restored to its state before the reverted run", "-5", "dropped"),
        ),
        (
            make_run(
                "published",
                kind="restore",
                publication=PUBLICATION,
                undone=(UndoneTable(table="nyc.trips", rows=-5, data_files=-1, dropped=True),),
            ),
            ("Dropped", "nyc.trips: dropped.", "-5"),
        ),
        (make_run("rejected", staged=(staged("a.b"), staged("a.c", before=None))), ("appended", "created", "a.c")),
    ],
)
def test_a_page_says_what_happened_what_it_means_and_what_to_do(run: Run, said: tuple[str, ...]) -> None:
    text = words(run_page(run))
    for part in said:
        assert part in text


def test_a_transaction_that_failed_before_its_first_table_has_a_page() -> None:
    # The catalog went away, so its branch is still there.
    changes = {"kind": "transaction", "status": "failed", "tables": (), "reports": (), "request": None, "staged": ()}
    run = REJECTED.model_copy(update={**changes, "error": RunError(code="catalog-unavailable", message="It's away.")})
    assert run.branch_kept
    page = words(run_page(run))
    assert "away." in page
    assert f"lakegate discard {run.branch}" in page
    assert "lakegate query" not in page


def test_rows_name_their_file_and_mark_the_struct_of_a_field_that_fails() -> None:
    row = {f"c{at}": at for at in range(20)} | {"home": {"zip": None}, "_file": "file:/lake/data/00000-1.parquet"}
    run = make_run("rejected", reports=(report(result(Check(kind="not_null", columns=("home.zip",)), 1, [row])),))
    page = run_page(run)
    assert '<td class="wrong"><span class="hidden">fails: </span><bdi>{&#34;zip&#34;: null}' in page
    assert "<bdi>00000-1.parquet</bdi>" in page
    row |= {"_row": 1200, "_file": "file:///in/a%20b.csv"}
    run = make_run("rejected", reports=(report(result(Check(kind="not_null", columns=("home.zip",)), 1, [row])),))
    assert "<bdi>a b.csv, row 1,200</bdi>" in run_page(run)
    assert "/lake/data" not in page
    assert "… and 9 more columns" in words(page)


def test_a_check_that_asks_for_more_rows_gets_them() -> None:
    rows = [{"passenger_count": None, "trip_id": f"trip {at}"} for at in range(9)]
    check = Check(kind="not_null", columns=("passenger_count",), examples=8)
    run = make_run("rejected", reports=(report(result(check, 40, rows)),))
    assert words(run_page(run, examples=Examples(rows=10))).count("trip ") == 8
    assert words(run_page(run, examples=Examples(rows=3))).count("trip ") == 3
    assert words(run_page(run)).count("trip ") == 5


def test_examples_can_be_left_out_or_masked() -> None:
    assert "trip_id" not in run_page(REJECTED, examples=Examples(rows=0))
    page = run_page(HOSTILE_RUN, examples=Examples(rows=1, masked=("LONG", "heb*")))
    assert "xxx" not in page
    assert "\u05e9" not in page
    assert page.count(MASK) == 2


def test_a_page_with_200_failing_checks_of_wide_rows_stays_small() -> None:
    rows = [{f"c{number}": "<&>" * 300 for number in range(100)}] * 10
    failing = [result(Check(kind="not_null", columns=(f"c{number}",)), 10, rows) for number in range(200)]
    page = run_page(make_run("rejected", branch_kept=True, reports=(report(*failing),)))
    assert len(page.encode()) < 2_000_000
    assert page.count("<article") == 200
    assert "left out to keep this page small" in page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with chromium() as running:
        yield running


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_browser_shows_it_without_network_and_without_overflow(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    path = tmp_path / "run.html"
    path.write_text(run_page(HOSTILE_RUN, link="https://lake.example.com/?run=r1"), encoding="utf-8")
    troubles: list[str] = []
    requests: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 700})
    page = context.new_page()
    page.on("console", lambda said: troubles.append(said.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert troubles == []
    assert requests == [path.as_uri()]
    assert page.title() == "Rejected: nyc.trips \N{MIDDLE DOT} lakegate"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.get_by_role("heading", level=1).inner_text() == "nyc.trips"
    assert page.get_by_role("region", name="Rows that fail").get_by_role("row").count() == 6
    assert page.locator("td.wrong").count() == 5
    assert page.get_by_role("link", name="See this run on the dashboard").get_attribute("href")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark is (scheme == "dark")
    assert page.evaluate("getComputedStyle(document.querySelector('.status')).borderRadius") == "10px"
    context.close()


def test_a_page_without_the_audits_report_claims_nothing_about_its_checks() -> None:
    gone = {"reports": (), "detail": "Its steps, reports and alerts were deleted on 2026-03-01 (journal.keep_detail)."}
    assert "Its audit failed, so nothing was published." in run_page(REJECTED.model_copy(update=gone))
    published = run_page(PUBLISHED.model_copy(update=gone))
    assert "No check was configured" not in published
    accepted = {**gone, "accepted": Acceptance(actor="ada", reason="meters off", at=START)}
    assert "Its audit failed; ada published it anyway" in run_page(PUBLISHED.model_copy(update=accepted))
