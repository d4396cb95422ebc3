"""The content of messages, which no data can break."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.alerts.apprise import body
from lakegate.alerts.dispatch import alert_key, concerns
from lakegate.alerts.message import MAX_FAILURES, Message, compose
from lakegate.alerts.slack import blocks, fallback
from lakegate.config import ChannelSettings, NotifySettings
from lakegate.model.checks import CheckResult
from lakegate.model.downstream import LateTable, Notice
from lakegate.model.run import OpenTime, Run, RunError
from lakegate.model.schema import MASK
from support.cli_support import (
    BRANCH,
    EXAMPLES,
    FAILED_RUN,
    IN_RANGE,
    NOT_NULL,
    PUBLISHED,
    REJECTED,
    make_run,
    report,
    staged,
)
from support.cli_support import result as result_of
from support.examples import examples
from support.notify_support import given_up, lost_file
from support.slack_server import problems

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
PIECES = (
    *("<!here>", "<@U1>", "@channel", "@everyone", "&", "<", ">", "`", "```", "\n", "\0", "\u202e", "\ud800", "|"),
    *("*b*", "&amp;", "<https://evil.example|x>", "![x](https://evil.example)", "x" * 2999, "🐘" * 400),
)
HOSTILE = st.one_of(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=6).map("".join),
    st.builds(str.__mul__, st.sampled_from(PIECES), st.integers(1, 2000)).map(lambda text: text[:5000]),
)


def notice(run: Run, **changes: Any) -> Notice:
    severity = "info" if run.status == "published" else "error"
    given = {"event": run.status, "severity": severity, "tables": run.tables, "run": run, "at": NOW}
    return Notice.model_validate(given | changes)


def message(of: Notice, **rules: Any) -> Message:
    return compose(of, NotifySettings(**rules))


def slack(one: Message) -> dict[str, Any]:
    return {"text": fallback(one), "blocks": list(blocks(one))}


def text_of(one: Message) -> str:
    return json.dumps(slack(one), ensure_ascii=False)


def test_a_rejection_says_what_failed_and_what_to_type() -> None:
    until = datetime(2026, 2, 2, 7, tzinfo=UTC)
    run = REJECTED.model_copy(update={"staged": (staged("nyc.trips"),), "branch_until": until})
    one = message(notice(run), report_url="https://lake.example.com/runs/{run_id}?t={table}")
    told = text_of(one)
    assert problems(slack(one)) == []
    for part in (
        "nyc.trips: rejected",
        "1 of 2 checks failed",
        REJECTED.run_id,
        "`passenger_count`",
        "1,003 of 100,000",
        "2026-02-02T07:00:00Z",
    ):
        assert part in told, part
    for command in (f"runs {REJECTED.run_id}", f"publish {BRANCH}", f"discard {BRANCH}", f"diff main {BRANCH}"):
        assert f"lakegate {command}" in told, command
    assert f"<https://lake.example.com/runs/{REJECTED.run_id}?t=nyc.trips|Report of the run>" in told
    assert "More like this are sent after 1h at the earliest." in told


def test_rows_are_shown_only_if_allowed() -> None:
    rejected = notice(REJECTED)
    assert EXAMPLES
    for allowed in (False, True):
        one = message(rejected, examples=allowed)
        for told in (text_of(one), body(one)):
            assert ("trip_id" in told) == allowed
            assert "f.parquet" not in told


def test_a_failure_says_why_without_secrets() -> None:
    run = FAILED_RUN.model_copy(
        update={"error": RunError(code="engine", message="sc://me:hunter22@host:15002 went away", hint="Try again.")}
    )
    told = text_of(message(notice(run)))
    assert "went away" in told
    assert "Try again." in told
    assert "hunter22" not in told


@pytest.mark.parametrize(
    ("code", "expected"), [("engine", "main is unchanged"), ("outcome-unknown", "which may or may not have happened")]
)
def test_a_failure_says_whether_anything_was_published(code: str, expected: str) -> None:
    run = FAILED_RUN.model_copy(update={"error": RunError(code=code, message="No answer.")})
    assert expected in text_of(message(notice(run)))


def test_a_late_table_and_a_test() -> None:
    late = LateTable(table="nyc.trips", expected_every="1d", last=NOW, run_id="r1")
    one = message(Notice(event="late", severity="error", tables=("nyc.trips",), late=late, at=NOW))
    assert "since 2026-01-31 07:05 UTC; expected every 1d" in text_of(one)
    never = late.model_copy(update={"last": None})
    assert "yet" in text_of(message(Notice(event="late", severity="error", tables=("a.b",), late=never, at=NOW)))
    assert problems(slack(message(Notice(event="test", severity="info", tables=(), at=NOW)))) == []


def test_a_file_that_was_given_up_says_which_and_why_and_what_to_type() -> None:
    one = message(given_up(lost_file("a b&`c`.parquet", run_id="r7")))
    told = text_of(one)
    assert problems(slack(one)) == []
    for part in ("nyc.trips: file given up", "Tried 3 times; won't retry until it changes.", "is cut off"):
        assert part in told, part
    assert "`s3://landing/a b&amp;\u02cbc\u02cb.parquet`" in told
    assert "lakegate runs r7" in told
    said = "https://me:hunter22@host/a?X-Amz-Signature=hunter22 and password=hunter22"
    secret = message(given_up(lost_file(uri="https://me:hunter22@host/a", reason=said)))
    assert "hunter22" not in text_of(secret) + body(secret)


def test_many_failed_checks_are_counted() -> None:
    many = report(*(result_of(NOT_NULL.model_copy(update={"label": f"c{n}"}), 5) for n in range(60)))
    one = message(notice(make_run("rejected", reports=(many,))))
    assert (len(one.failures), one.more_failures) == (MAX_FAILURES, 50)
    assert problems(slack(one)) == []
    assert "… and 50 more checks failed." in text_of(one)
    assert "1 more check failed." in body(replace(one, more_failures=1))


@settings(max_examples=examples(15, 40))
@given(texts=st.lists(HOSTILE, min_size=8, max_size=8), rows=st.integers(0, 3), checks=st.integers(1, 12))
def test_no_data_makes_a_message_that_slack_refuses_or_misreads(texts: list[str], rows: int, checks: int) -> None:
    example = {texts[0]: texts[1], texts[2]: texts[3]}
    failed = CheckResult(
        name=texts[4],
        check=texts[5],
        columns=(texts[0], texts[6], *texts),
        severity="error",
        verdict="fail",
        failing_rows=7,
        total_rows=9,
        evidence="scan",
        examples=(example,) * rows,
        detail=texts[7],
    )
    run = make_run(
        "rejected",
        tables=(texts[6], texts[4]),
        branch=texts[7],
        branch_kept=True,
        name=texts[3],
        detail=texts[2],
        reports=(report(*[failed] * checks, table=texts[1]),),
        error=RunError(code="x", message=texts[0], hint=texts[5]),
    )
    url = "https://lake.example.com/{table}/{branch}/{run_id}"
    file = lost_file(uri=texts[6], reason=texts[7], run_id=texts[0] or None)
    notices = [notice(run.model_copy(update={"status": status})) for status in ("rejected", "failed")]
    for told_of in (*notices, given_up(file, texts[4])):
        one = message(told_of, examples=True, report_url=url)
        told = slack(one)
        assert problems(told) == []
        assert len(json.dumps(told, ensure_ascii=False).encode()) < 100_000
        written = body(one).splitlines()
        assert all(line.isprintable() or "\u200b" in line for line in written)
        assert not any(mark in line for line in written for mark in ("@everyone", "@channel", "<!here", "<@U1", "]("))


def channel(**given: Any) -> ChannelSettings:
    return ChannelSettings(**{"name": "ops", "type": "slack", "url": "env:HOOK", **given})


@pytest.mark.parametrize(
    ("rule", "rejected", "published", "recovered"),
    [
        ({}, True, False, True),
        ({"events": ("published",)}, False, True, True),
        ({"events": ("recovered",)}, False, False, True),
        ({"events": ("published", "rejected"), "severity": "warn"}, True, False, True),
        ({"tables": ("lab.*",)}, False, False, False),
        ({"tables": ("lab.*", "nyc.*")}, True, False, True),
    ],
)
def test_rules(rule: dict[str, Any], rejected: bool, published: bool, recovered: bool) -> None:
    asks = channel(**rule)
    assert concerns(asks, notice(REJECTED)) == rejected
    assert concerns(asks, notice(PUBLISHED)) == published
    assert concerns(asks, notice(PUBLISHED, recovered=True, severity="warn")) == recovered


def test_alerts_of_the_same_kind_and_table_have_the_same_key() -> None:
    again = make_run("rejected", run_id="other", reports=(report(result_of(IN_RANGE, 1)),))
    assert alert_key(notice(REJECTED)) == alert_key(notice(again))
    other_table = REJECTED.model_copy(update={"tables": ("nyc.other",)})
    keys = [alert_key(notice(run)) for run in (REJECTED, other_table, FAILED_RUN, PUBLISHED)]
    assert len({*keys, alert_key(notice(PUBLISHED, recovered=True))}) == 5


def test_examples_hide_what_the_dashboard_hides() -> None:
    told = notice(REJECTED)
    rules, first = NotifySettings(examples=True), message(told, examples=True)
    hidden = compose(told, rules, masked=["*"])
    rows = [[row for _, result in one.failures for row in result.examples] for one in (first, hidden)]
    assert rows[0]
    assert rows[1] == [dict.fromkeys(row, MASK) for row in rows[0]]


def test_an_opening_is_named_with_those_who_wrote() -> None:
    opening = OpenTime(deadline=NOW, writers=("PyIceberg/0.12.0", "<!here>"))
    run = make_run("failed", kind="gate", name=None, tables=(), branch=BRANCH, opening=opening, branch_kept=True)
    told = text_of(message(notice(run)))
    assert problems(slack(message(notice(run)))) == []
    assert f"{BRANCH}: gate failed" in told
    assert "PyIceberg/0.12.0" in told
    named = run.model_copy(update={"name": "shop", "detail": "dbt: 3 models."})
    assert "shop: gate failed" in text_of(message(notice(named)))
    assert "dbt: 3 models." in text_of(message(notice(named)))
