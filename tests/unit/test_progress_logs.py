"""JSON log lines: their fields, the secrets left out, and the run that each belongs to."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate import __version__, progress
from lakegate.progress import FIELDS, LogNarrator, bound, bound_to, without_secrets
from support.cli_support import BRANCH, PUBLISHED, RUN_ID


class Log(io.StringIO):
    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def records(log: Log) -> Iterator[logging.Logger]:
    """A logger whose records become log lines."""
    logger = logging.getLogger("tests.progress")
    handler = LogNarrator(log).handler()
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.removeHandler(handler)


def test_a_line_has_every_field_in_one_order(log: Log) -> None:
    LogNarrator(log, command="nightly").note("A fact")
    [line] = log.lines
    assert tuple(line) == FIELDS
    assert (line["event"], line["level"], line["command"], line["version"]) == (
        "A fact",
        "info",
        "nightly",
        __version__,
    )
    assert line["run_id"] is line["seconds"] is None
    told = datetime.fromisoformat(line["timestamp"])
    assert told.utcoffset() == timedelta(0)
    assert told <= datetime.now(UTC)


def test_lines_have_the_facts_of_the_work(log: Log) -> None:
    narrator = LogNarrator(log)
    with bound_to(PUBLISHED), bound(step="write"):
        narrator.note("inside")
    narrator.note("outside")
    inside, outside = log.lines
    names = ("run_id", "table", "branch", "step")
    assert [inside[name] for name in names] == [RUN_ID, "nyc.trips", BRANCH, "write"]
    assert [outside[name] for name in names] == [None] * 4


def test_each_thread_has_its_own_run(log: Log) -> None:
    narrator = LogNarrator(log)
    together = threading.Barrier(4)

    def work(run_id: str) -> None:
        with bound(run_id=run_id):
            together.wait(timeout=120)
            with narrator.step(run_id):
                together.wait(timeout=120)

    threads = [threading.Thread(target=work, args=(f"run{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.lines) == 8
    assert {(line["event"], line["run_id"]) for line in log.lines} == {(f"run{n}", f"run{n}") for n in range(4)}


def test_a_step_logs_its_start_its_end_and_its_duration(log: Log) -> None:
    with LogNarrator(log).step("Writing"):
        pass
    began, done = log.lines
    assert [line["state"] for line in (began, done)] == ["began", "done"]
    assert began["seconds"] is None
    assert done["seconds"] >= 0


def test_a_failing_step_is_logged_and_its_error_propagates(log: Log) -> None:
    with pytest.raises(KeyError), LogNarrator(log).step("Doomed"):
        raise KeyError
    failed = log.lines[-1]
    assert (failed["state"], failed["level"], failed["error"]) == ("failed", "warning", "KeyError")


@pytest.mark.parametrize(
    "text",
    [
        "sc://host:1/;token=hunter22",
        "http://me:hunter22@nessie/api/v2",
        "GET https://b.s3/x?X-Amz-Signature=hunter22&X-Amz-Date=1",
        "Authorization: Bearer hunter22hunter22",
        "the value hunter22 itself",
    ],
)
def test_no_secret_gets_into_a_line(log: Log, records: logging.Logger, text: str) -> None:
    narrator = LogNarrator(log, hidden=("hunter22", ""))
    narrator.note(text)
    narrator.line(logging.ERROR, "x", context={"list": [text], "inner": {"value": text}})
    assert "hunter22" not in log.getvalue()
    assert len(log.lines) == 2
    if "value" not in text:
        records.warning("library says %s", text)
        assert "hunter22" not in log.getvalue()


def test_of_two_secrets_that_begin_alike_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECRETS", deque[str]())
    progress.hide("lake")
    progress.hide("lake-hunter22")
    assert without_secrets("Can't sign in with lake-hunter22 to lake.") == "Can't sign in with … to …."
    stream = io.StringIO()
    LogNarrator(stream, hidden=("env", "env-hunter22", "lake-hunter22-old")).note("env-hunter22 lake-hunter22-old")
    assert json.loads(stream.getvalue())["event"] == "… …"


def test_records_of_logging_become_lines(log: Log, records: logging.Logger) -> None:
    with bound(run_id="r1"):
        records.warning("half %d%%", 50, extra={"facts": {"rows": 3}})
    records.error("lost", exc_info=ZeroDivisionError())
    records.log(25, "between two levels")
    half, lost, between = log.lines
    assert (half["event"], half["level"], half["run_id"], half["rows"]) == ("half 50%", "warning", "r1", 3)
    assert half["logger"] == "tests.progress"
    assert "ZeroDivisionError" in lost["exception"]
    assert between["level"] == "info"


def test_a_log_that_cannot_be_written_does_not_stop_the_work() -> None:
    closed = io.StringIO()
    closed.close()
    with LogNarrator(closed).step("Writing") as step:
        step.progress(1, 2, "tasks")


@given(
    st.text(),
    st.dictionaries(st.text(), st.recursive(st.none() | st.floats() | st.text() | st.binary(), st.lists, max_leaves=5)),
)
def test_every_line_is_one_line_of_json(event: str, context: dict[str, Any]) -> None:
    told = io.BytesIO()
    stream = io.TextIOWrapper(told, encoding="ascii", errors="strict", write_through=True)
    LogNarrator(stream).line(logging.INFO, event, context=context)
    [line] = told.getvalue().decode("ascii").split("\n")[:-1]
    assert isinstance(json.loads(line, parse_constant=pytest.fail)["event"], str)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("GET https://a.blob.core.windows.net/c/f?sv=2022&sig=aB%2F0%3D&se=1: 403", "sv=2022&sig=…&se=1: 403"),
        ("DefaultEndpointsProtocol=https;AccountKey=aB0/+==;EndpointSuffix=core", "AccountKey=…;EndpointSuffix=core"),
        ("Endpoint=sb://x/;SharedAccessKey=aB0=", "SharedAccessKey=…"),
        ("POST https://host/?api_key=aB0 failed", "?api_key=… failed"),
        ("""{"user": "ann", "password": "aB0"}""", """{"user": "ann", "password": "…"}"""),
        ("fs.azure.account.key.acct.dfs.core.windows.net=S3cretKey==", "account.key.acct.dfs.core.windows.net=…"),
        ("fs.azure.account.oauth2.client.secret.acct.net=aB0 x", "client.secret.acct.net=… x"),
        ("spark.hadoop.fs.s3a.secret.key=aB0", "secret.key=…"),
        ('connect(password="hunter2", user="ann")', 'connect(password="…", user="ann")'),
        ("password = 'hunter 2'", "password = '…'"),
        ("""{user: "ann", password: "aB0", api_key: 'k'}""", """{user: "ann", password: "…", api_key: '…'}"""),
        ("""token: "aB0\nThe next line""", """token: "…\nThe next line"""),
        ("access_token: 'aB0'", "access_token: '…'"),
        (
            "auth token: 'a', Bearer token: 'b', invalid_token: 'c'",
            "auth token: '…', Bearer token: '…', invalid_token: '…'",
        ),
        ("Invalid token: 'aB0aB0aB0aB0aB0aB0'", "Invalid token: '…'"),
        ('AccountKey="abc";EndpointSuffix=core', 'AccountKey="…";EndpointSuffix=core'),
        (r'{"body": "{\"password\": \"x y\", \"n\": 1}"}', r'{"body": "{\"password\": \"…\", \"n\": 1}"}'),
        (
            r'"{\"a\": \"{\\\"password\\\": \\\"x\\\", \\\"n\\\": 1}\"}"',
            r'\\\"password\\\": \\\"…\\\", \\\"n\\\": 1}\"}"',
        ),
        (r'{"password": "a\"b\\", "n": 1}', r'{"password": "…", "n": 1}'),
        (r"{\"password\": \"a\\\"b\", \"n\": 1}", r"{\"password\": \"…\", \"n\": 1}"),
        (r'"said {\"password\": \"cut" and went on', r'"said {\"password\": \"…" and went on'),
        ("{'password': 'ab;cd', 'n': 1}", "{'password': '…', 'n': 1}"),
        ("""{'password': "it's", 'n': 1}""", """{'password': "…", 'n': 1}"""),
        ("""sc://host/;token="ab;cd";user_id=me""", "sc://host/;token=…;user_id=me"),
        ("password='cut off\nThe next line", "password='…\nThe next line"),
        ("two: password='a', token='b'.", "two: password='…', token='…'."),
    ],
)
def test_what_looks_like_a_secret_is_left_out_of_other_programs_texts(said: str, kept: str) -> None:
    told = without_secrets(said)
    assert told.endswith(kept)
    assert without_secrets(told) == told


@pytest.mark.parametrize(
    "said",
    [
        "Unexpected token: aB0, design=aB0",
        'Unexpected token: "}"',
        "Invalid token: 'SELEC'",
        "Illegal token : 'foo', and extraneous token: 'bar'",
        "the password is wrong",
        "The 'password' column isn't there, nor 'token'.",
        "unique(key) and unique('account_key', 'day') failed",
        "lakegate.key = value, key='k1', keys=3",
        "password='', token=\"\"",
        'Write journal.password = "env:NAME_OF_THE_VARIABLE".',
        """{"columns": ["token", "secret"], "name": "signature"}""",
        "write.metadata.path = s3://lake/wh, format-version=2",
    ],
)
def test_other_texts_stay_as_they_are(said: str) -> None:
    assert without_secrets(said) == said


@pytest.mark.parametrize(
    "part", ["password='", 'token="\\', "account.key.a", "\\", "'\\\"", "sig ", "password=\\'\n", " "]
)
def test_hiding_secrets_takes_linear_time(part: str) -> None:
    # A quadratic algorithm would hang here.
    assert without_secrets(part * 5_000 + "password") is not None
