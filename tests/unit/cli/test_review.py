"""``lakegate audit``, ``publish`` and ``discard``."""

from __future__ import annotations

import json

import pytest

from lakegate.model.checks import Explanation
from support.cli_support import (
    BRANCH,
    FAILED,
    HASH,
    NOT_NULL,
    PASSED,
    PUBLICATION,
    PUBLISHED,
    REJECTED,
    RUN_ID,
    FakeLake,
    invoke,
    make_run,
    report,
    result,
    staged,
)

pytestmark = pytest.mark.usefixtures("in_a_project")


def test_the_report_decides_the_exit_code_of_an_audit() -> None:
    words = f"audit nyc.trips --branch {BRANCH} -o json"
    passed = invoke(words, FakeLake(audit=PASSED))
    assert (passed.exit_code, json.loads(passed.stdout)["passed"]) == (0, True)
    lake = FakeLake(audit=FAILED)
    failed = invoke(words, lake)
    assert (failed.exit_code, json.loads(failed.stdout)["passed"]) == (1, False)
    assert lake.asked("audit") == {"branch": BRANCH, "checks": None}
    text = invoke(f"audit nyc.trips --branch {BRANCH}", FakeLake(audit=FAILED)).stdout
    assert "failed" in text
    assert "Rows that fail" in text


def test_publish_and_discard() -> None:
    assert json.loads(invoke("publish b -o json", FakeLake(publish=PUBLISHED)).stdout)["commit"] == HASH
    assert "published" in invoke("publish b", FakeLake(publish=PUBLISHED)).stdout
    assert json.loads(invoke("discard b -o json", FakeLake(discard=None)).stdout)["run_id"] is None
    assert RUN_ID in invoke("discard b", FakeLake(discard=REJECTED)).stdout


def test_discard_says_that_the_rows_of_a_published_run_stay() -> None:
    """Its commit had arrived although the command that published it got no answer."""
    said = invoke("discard b", FakeLake(discard=PUBLISHED)).stdout
    assert f"published before, in commit {HASH[:12]}: main keeps its rows" in said
    assert f"lakegate revert {RUN_ID}" in said
    for run, commit in ((PUBLISHED, HASH), (REJECTED, None), (None, None)):
        assert json.loads(invoke("discard b -o json", FakeLake(discard=run)).stdout)["commit"] == commit
    assert "published" not in invoke("discard b", FakeLake(discard=REJECTED)).stdout


TWO = make_run(
    "published",
    kind="transaction",
    tables=("nyc.trips", "nyc.zones"),
    request=None,
    staged=(staged("nyc.trips"), staged("nyc.zones", before=None, change="rewrite", rows=260, data_files=1)),
    reports=(PASSED, report(result(NOT_NULL), table="nyc.zones")),
    publication=PUBLICATION.model_copy(
        update={"tables": ("nyc.trips", "nyc.zones"), "rows": 100_260, "replayed": ("nyc.trips",)}
    ),
)


def test_publish_names_all_tables() -> None:
    text = invoke("publish b", FakeLake(publish=TWO)).stdout
    assert "nyc.trips, nyc.zones  100,260 rows in commit" in text
    assert "3 checks, passed (3 by file metrics)" in text
    rows = {words[0]: words[1:] for line in text.splitlines() if len(words := line.split()) > 3}
    assert rows["nyc.trips"] == ["appended,", "rebased", "100,000", "2"]
    assert rows["nyc.zones"] == ["created", "260", "1"]
    for table in TWO.tables:
        assert f"lakegate query 'SELECT * FROM {table} LIMIT 10'\n" in text
    told = json.loads(invoke("publish b -o json", FakeLake(publish=TWO)).stdout)
    assert (told["kind"], told["tables"]) == ("transaction", ["nyc.trips", "nyc.zones"])
    assert [check["table"] for check in told["checks"]] == ["nyc.trips", "nyc.trips", "nyc.zones"]
    assert told["replayed"] == ["nyc.trips"]


def test_a_rejected_transaction_offers_the_rows_of_the_table_that_failed() -> None:
    failed = FAILED.model_copy(update={"table": "nyc.zones"})
    run = TWO.model_copy(
        update={"status": "rejected", "publication": None, "reports": (PASSED, failed), "branch_kept": True}
    )
    text = invoke("runs 2026", FakeLake(run=run)).stdout
    assert f"'SELECT * FROM nyc.zones WHERE passenger_count IS NULL LIMIT 20' --ref {BRANCH}" in text
    assert "1 of 4 checks failed; none of 100,260 rows was published" in text


def test_what_is_published_is_audited_without_a_run() -> None:
    lake = FakeLake(audit=PASSED.model_copy(update={"run_id": "", "branch": "main"}))
    shown = invoke("audit nyc.trips --branch main --since 2e1cfa82b035 -c not_null(fare)", lake)
    assert shown.exit_code == 0
    assert "what is published doesn't change" in shown.stdout
    assert lake.asked("audit") == {"branch": "main", "since": "2e1cfa82b035", "checks": ("not_null(fare)",)}
    assert json.loads(invoke("audit nyc.trips --at yesterday -o json", lake).stdout)["run_id"] is None


def test_an_audit_needs_to_know_which_rows() -> None:
    asked = invoke("audit nyc.trips", FakeLake())
    assert asked.exit_code == 2
    assert "--branch main" in asked.stderr
    both = invoke("audit nyc.trips --branch main --ref main", FakeLake())
    assert (both.exit_code, "--branch and --ref" in both.stderr) == (2, True)


def test_an_explained_audit_says_how_each_check_was_answered() -> None:
    told = Explanation(check=str(NOT_NULL), method="scan", reason="'fare' may hold NaN.", jobs=1, bytes=2_000_000)
    lake = FakeLake(audit=report(result(NOT_NULL)).model_copy(update={"explanations": (told,)}))
    shown = invoke("audit nyc.trips --branch main --explain", lake)
    assert "2.0 MB" in shown.stdout
    assert "may hold NaN" in shown.stdout
    assert lake.asked("audit")["explain"] is True
    (answered,) = json.loads(invoke("audit nyc.trips --branch main --explain -o json", lake).stdout)["explanations"]
    assert (answered["method"], answered["jobs"]) == ("scan", 1)
