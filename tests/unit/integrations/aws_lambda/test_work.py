"""The outcome of files in one call, with a lake that only has files and checkpoints."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from lakegate.config import FunctionSettings, Settings, load_settings
from lakegate.credentials.secret import resolve_secret
from lakegate.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    EngineError,
    InputError,
    RetryableError,
    SourceError,
)
from lakegate.integrations.aws_lambda import function, handler
from lakegate.integrations.aws_lambda.events import EventMessage
from lakegate.integrations.aws_lambda.function import NotDoneError, open_log
from lakegate.integrations.aws_lambda.work import Function, ingest_files
from lakegate.lake import Lake
from lakegate.progress import LogNarrator
from lakegate.sources.discovery import FoundFile
from lakegate.wap.deadline import NEVER, Deadline, DeadlineReachedError
from support.lambda_support import Queue, s3_event
from support.loader_support import Outcome, SteppingLake
from support.notify_support import told_server

SETTINGS = Settings.model_validate(
    {
        "catalog": {"uri": "https://nessie.example.com/api/v2", "warehouse": "s3://lake/warehouse"},
        "engine": {"url": "sc://spark.example.com:15002", "token": "env:SPARK_TOKEN"},
        "journal": {"url": "postgresql://lake@db.example.com/lake"},
        "watch": {"routes": ["in/{table}/*.csv => nyc.{table}", "s3://fixed/*.csv => nyc.fixed"], "max_tries": 2},
    }
)
AWAY = CatalogUnavailableError("Away.")


class StoreLake(SteppingLake):
    """A lake whose bucket has inaccessible objects."""

    def list_files(self, paths: Sequence[str], **options: object) -> Iterator[FoundFile]:
        for path in paths:
            if "denied" in path:
                raise SourceError(f"'{path}' may not be read.")
        return super().list_files(paths, **options)


@dataclass
class FakeLakes:
    """A function whose lake is never opened."""

    stepping: StoreLake = field(default_factory=StoreLake)
    settings: Settings = SETTINGS
    clock: None = None
    is_warm: bool = False
    prepares: Callable[[], None] = lambda: None
    reopened: int = 0
    closed: int = 0

    @property
    def function(self) -> Function:
        return cast("Function", self)

    @property
    def lake(self) -> Lake:
        return cast("Lake", self.stepping)

    def prepare(self) -> None:
        self.prepares()

    def reopen(self) -> Lake:
        self.reopened += 1
        self.is_warm = False
        return self.lake

    def close(self) -> None:
        self.closed += 1

    def put(self, *names: str) -> list[str]:
        uris = [f"s3://landing/in/{name}" for name in names]
        self.stepping.put(*uris)
        return uris

    def take(self, *uris: str, deadline: Deadline = NEVER, bucket: str = "landing") -> dict[str, tuple[str, bool]]:
        fates = ingest_files(self.function, bucket, dict.fromkeys(uris), deadline)
        return {uri.rpartition("/")[2]: (fate.outcome, fate.is_done) for uri, fate in fates.items()}


@pytest.fixture
def lakes() -> FakeLakes:
    return FakeLakes()


def test_files_go_by_their_tables(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv", "trips/b.csv", "zones/c.csv")
    assert lakes.take(*uris) == dict.fromkeys(["a.csv", "b.csv", "c.csv"], ("published", True))
    assert lakes.stepping.names() == [["a.csv", "b.csv"], ["c.csv"]]
    assert lakes.take(*uris) == dict.fromkeys(["a.csv", "b.csv", "c.csv"], ("published", True))
    assert len(lakes.stepping.taken) == 2


def test_a_route_with_a_bucket_is_of_that_bucket_only(lakes: FakeLakes) -> None:
    lakes.stepping.put("s3://fixed/a.csv", "s3://other/a.csv")
    assert lakes.take("s3://fixed/a.csv", bucket="fixed") == {"a.csv": ("published", True)}
    assert lakes.take("s3://other/a.csv", bucket="other") == {"a.csv": ("left out", True)}


def test_unrouted_and_missing_files_are_done(lakes: FakeLakes) -> None:
    fates = ingest_files(
        lakes.function,
        "landing",
        dict.fromkeys(["s3://landing/x.txt", "s3://landing/in/-/a.csv", *lakes.put()]),
        NEVER,
    )
    assert [fate.is_done for fate in fates.values()] == [True, True]
    assert all(fate.reason for fate in fates.values())
    assert lakes.take("s3://landing/in/trips/gone.csv") == {"gone.csv": ("left out", True)}


def test_a_poison_file_does_not_stop_others(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv", "trips/bad.csv", "trips/c.csv")
    lakes.stepping.becomes = lambda names: InputError("Damaged.") if "bad.csv" in names else "published"
    for _ in range(3):
        assert lakes.take(*uris) == {
            "a.csv": ("published", True),
            "bad.csv": ("failed", False),
            "c.csv": ("published", True),
        }
    assert sum(names == ["bad.csv"] for names in lakes.stepping.names()) == 2, "it is given up, and told to be so"


def test_engine_failures_do_not_stop_others(lakes: FakeLakes) -> None:
    uris = lakes.put(*(f"trips/{name}.csv" for name in "abcd"))

    def become(names: Sequence[str]) -> Outcome:
        return EngineError("Crashed.") if {"a.csv", "b.csv"}.intersection(names) else "published"

    lakes.stepping.becomes = become
    fates = lakes.take(*uris)
    assert [is_done for _, is_done in fates.values()] == [False, False, True, True]


def test_a_format_that_the_function_cannot_read_does_not_stop_others(lakes: FakeLakes) -> None:
    uris = lakes.put(*(f"{table}/x.csv" for table in "abcd"))
    lacking = ConfigurationError("Reading Avro files needs the package fastavro, which isn't installed.")
    lakes.stepping.becomes = lambda _: lacking if len(lakes.stepping.taken) in {1, 2} else "published"
    fates = ingest_files(lakes.function, "landing", dict.fromkeys(uris), NEVER)
    assert [(fate.outcome, fate.is_done) for fate in fates.values()] == [("put off", False)] * 2 + [
        ("published", True)
    ] * 2
    assert fates[uris[0]].reason == lacking.message
    assert len(lakes.stepping.taken) == 4


def test_two_troubles_in_a_row_stop_the_call(lakes: FakeLakes) -> None:
    uris = lakes.put(*(f"{table}/x.csv" for table in "abcd"))
    lakes.stepping.becomes = lambda _: AWAY
    fates = ingest_files(lakes.function, "landing", dict.fromkeys(uris), NEVER)
    assert {(fate.outcome, fate.is_done, fate.reason) for fate in fates.values()} == {("put off", False, "Away.")}
    assert len(lakes.stepping.taken) == 2
    assert lakes.closed == 1


def test_a_lake_of_an_earlier_call_is_reopened_once(lakes: FakeLakes) -> None:
    lakes.is_warm = True
    uris = lakes.put("trips/a.csv", "trips/b.csv")
    outcomes: Iterator[Outcome] = iter([AWAY, "published"])
    lakes.stepping.becomes = lambda _: next(outcomes)
    assert set(lakes.take(*uris).values()) == {("published", True)}
    assert (lakes.reopened, len(lakes.stepping.made)) == (1, 1)


def test_an_inaccessible_file_does_not_stop_others(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv", "trips/denied.csv")
    assert lakes.take(*uris) == {"a.csv": ("published", True), "denied.csv": ("failed", False)}


def test_without_time_an_old_checkpoint_says_nothing_about_new_content(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv")
    assert lakes.take(*uris) == {"a.csv": ("published", True)}
    lakes.stepping.put(*uris, version=2)
    assert lakes.take(*uris, deadline=Deadline(0.0)) == {"a.csv": ("not done", False)}
    assert lakes.take(*uris) == {"a.csv": ("published", True)}
    assert len(lakes.stepping.taken) == 2


def test_the_deadline_in_the_middle(lakes: FakeLakes, monkeypatch: pytest.MonkeyPatch) -> None:
    uris = lakes.put("a/x.csv", "b/y.csv")

    def become(names: Sequence[str]) -> Any:
        monkeypatch.setattr(Deadline, "left_s", 0.0)
        return DeadlineReachedError("The time was over.")

    lakes.stepping.becomes = become
    assert set(lakes.take(*uris, deadline=Deadline.after(600)).values()) == {("not done", False)}
    assert len(lakes.stepping.taken) == 1
    monkeypatch.undo()
    lakes.stepping.becomes = lambda _: "published"
    assert set(lakes.take(*uris).values()) == {("published", True)}
    assert len(lakes.stepping.made) == 2


def test_often_delivered_runs_are_resumed_one_at_a_time(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv")
    files = dict.fromkeys(uris)
    lakes.stepping.becomes = lambda _: AWAY
    ingest_files(lakes.function, "landing", files, NEVER)  # begun, and parked
    lakes.stepping.becomes = lambda _: "published"
    lakes.stepping.taken.clear()

    with lakes.stepping.lock("lambda/alone", timeout_s=1.0):
        [crowded] = ingest_files(lakes.function, "landing", files, NEVER, often=set(uris)).values()
        assert (crowded.outcome, crowded.reason) == ("not done", "Another run must finish first.")
        assert lakes.stepping.taken == []
    [alone] = ingest_files(lakes.function, "landing", files, NEVER, often=set(uris)).values()
    assert alone.outcome == "published"


def test_a_run_held_by_another_call_is_left_alone(lakes: FakeLakes) -> None:
    uris = lakes.put("trips/a.csv")
    lakes.stepping.becomes = lambda _: AWAY
    assert lakes.take(*uris) == {"a.csv": ("put off", False)}
    lakes.stepping.at_work = set(lakes.stepping.made)
    assert lakes.take(*uris) == {"a.csv": ("not done", False)}
    assert len(lakes.stepping.taken) == 1


@pytest.mark.parametrize("missing", ["catalog", "engine", "journal", "watch"])
def test_required_settings(missing: str) -> None:
    settings = SETTINGS.model_copy(update={missing: getattr(Settings(), missing)})
    with pytest.raises(ConfigurationError) as caught:
        Function(settings, LogNarrator(io.StringIO()))
    assert f"LAKEGATE_{missing.upper()}_" in str(caught.value.hint)


class Called:
    """The context that AWS passes."""

    aws_request_id = "8476a536-e9f4-11e8-9739-2dfe598c3fcd"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.fixture
def log_of_before() -> Iterator[None]:
    """Restore lakegate's log, which the function changes for its process."""
    log = logging.getLogger("lakegate")
    handlers, level, propagate = list(log.handlers), log.level, log.propagate
    yield
    log.handlers, log.propagate = handlers, propagate
    log.setLevel(level)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, int]]:
    """Ids of messages that SQS was asked to redeliver, with their delays in seconds."""
    asked: list[tuple[str | None, int]] = []

    def ask(delays: Iterable[tuple[EventMessage, int]]) -> None:
        asked.extend((message.id, after_s) for message, after_s in delays)

    monkeypatch.setattr(function, "deliver_again", ask)
    return asked


@pytest.mark.usefixtures("log_of_before")
def test_each_unfinished_message_is_redelivered_after_its_own_delay(
    lakes: FakeLakes, monkeypatch: pytest.MonkeyPatch, soon: list[tuple[str | None, int]]
) -> None:
    settings = SETTINGS.model_copy(update={"function": FunctionSettings(retry_s=7)})
    made = Function(settings, open_log())
    made.__dict__["lake"] = lakes.lake
    monkeypatch.setattr(function, "_FUNCTIONS", [made])
    lakes.put("trips/bad.csv", "trips/a.csv", "zones/c.csv")
    lakes.stepping.becomes = lambda names: (
        InputError("Damaged.") if "bad.csv" in names else AWAY if "c.csv" in names else "published"
    )
    queue = Queue()
    bad, _, away, both, odd = queue.send(
        s3_event("landing", "in/trips/bad.csv"),
        s3_event("landing", "in/trips/a.csv"),
        s3_event("landing", "in/zones/c.csv"),
        s3_event("landing", "in/trips/bad.csv", "in/zones/c.csv"),
        "not JSON",
    )

    answer = handler(queue.receive(), Called())

    assert answer == {"batchItemFailures": [{"itemIdentifier": name} for name in (bad, away, both, odd)]}
    assert [name for name, _ in soon] == [bad, away, both, odd]
    assert [after_s <= 7 for _, after_s in soon] == [True, False, False, True]


@pytest.mark.usefixtures("log_of_before", "soon")
def test_a_call_and_its_log(
    lakes: FakeLakes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_TOKEN", "a-token-of-spark")
    assert resolve_secret("env:SPARK_TOKEN", setting="engine.token")  # as a run does
    made = Function(SETTINGS, open_log())
    made.__dict__["lake"] = lakes.lake
    monkeypatch.setattr(function, "_FUNCTIONS", [made])
    lakes.put("trips/bad.csv", "trips/a.csv")
    reason = "Spark has refused a-token-of-spark at https://b.s3.amazonaws.com/k?X-Amz-Signature=5ecret&x=1"
    lakes.stepping.becomes = lambda names: InputError(reason) if "bad.csv" in names else "published"
    queue = Queue()
    bad, _ = queue.send(s3_event("landing", "in/trips/bad.csv"), s3_event("landing", "in/trips/a.csv"))
    assert handler(queue.receive(), Called()) == {"batchItemFailures": [{"itemIdentifier": bad}]}
    with pytest.raises(NotDoneError, match=r"1 of 1 file\(s\) aren't done: s3://landing/in/trips/bad.csv"):
        handler(s3_event("landing", "in/trips/bad.csv"), Called())
    told = capsys.readouterr().out
    assert "5ecret" not in told
    assert "a-token-of-spark" not in told
    lines = [json.loads(line) for line in told.splitlines()]
    assert {line["aws_request_id"] for line in lines} == {Called.aws_request_id}
    assert [line["outcome"] for line in lines if line.get("file")] == ["failed", "published", "failed"]


@pytest.mark.usefixtures("log_of_before")
def test_the_error_that_aws_gets_has_no_secrets(lakes: FakeLakes, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Function(SETTINGS, open_log())
    made.__dict__["lake"] = lakes.lake
    monkeypatch.setattr(function, "_FUNCTIONS", [made])
    lakes.put("trips/a.csv")
    lakes.stepping.becomes = lambda _: CatalogUnavailableError("GET https://h/k?X-Amz-Signature=5ecret failed.")
    with pytest.raises(NotDoneError, match="GET https://h/k") as caught:
        handler(s3_event("landing", "in/trips/a.csv"), Called())
    assert "5ecret" not in str(caught.value)


SCHEDULED = {"lakegate": "admin notify late"}
"""What the template's schedule calls the function with; test_aws_template compares."""


def scheduled(home: Path, **settings: Any) -> Function:
    """Return a function whose catalog and Spark are not there."""
    flags = {
        "catalog.uri": "http://127.0.0.1:9/api/v2",
        "catalog.warehouse": "s3://lake/warehouse",
        "engine.url": "sc://127.0.0.1:9",
        "journal.url": f"sqlite:///{home / 'journal.db'}",
        "watch.routes": '["{table}/*"]',
    }
    return Function(load_settings(home, env={}, flags={**flags, **settings}), open_log())


@pytest.mark.usefixtures("log_of_before")
def test_a_scheduled_call_reports_late_tables_with_only_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lakegate.toml").write_text(
        '[notify.late]\n"nyc.trips" = "1d"\n[[notify.channels]]\nname = "ops"\ntype = "slack"\nurl = "env:HOOK_URL"\n'
    )
    made = scheduled(tmp_path)
    monkeypatch.setattr(function, "_FUNCTIONS", [made])
    with told_server(monkeypatch) as slack:
        for _ in range(2):
            assert handler(SCHEDULED, Called()) == {}
        told = [message["text"] for message in slack.messages]
    made.close()
    assert [text.partition(":")[2].partition(":")[0].strip() for text in told] == ["late"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], list(line["told"])) for line in lines] == [("nyc.trips: late", ["ops"])] * 2
    assert lines[0]["told"] == {"ops": "sent"}


@pytest.mark.usefixtures("log_of_before")
def test_a_scheduled_call_without_the_journal_must_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakegate.toml").write_text('[notify.late]\n"nyc.trips" = "1d"\n')
    made = scheduled(tmp_path, **{"journal.url": "postgresql://lake@127.0.0.1:9/lake"})
    made.is_warm = True
    monkeypatch.setattr(function, "_FUNCTIONS", [made])
    with pytest.raises(RetryableError):
        handler(SCHEDULED, Called())
    assert (made.is_warm, "lake" in made.__dict__) == (False, False), "the next call connects anew"
