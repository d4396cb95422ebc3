"""The parts of ``lakegate demo --aws``: folder, files, Slack stand-in, waiting, and output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.cli.commands import down
from lakegate.config import load_settings
from lakegate.errors import ConfigurationError, RetryableError
from lakegate.integrations.aws import demo
from lakegate.integrations.aws.demo import (
    AwsDemo,
    Cloud,
    DeadLetter,
    DemoFile,
    DemoHome,
    OutcomeWaiter,
    Upload,
    make_files,
    run_demo,
    slack_stand_in,
    text_of,
)
from lakegate.lake import Lake
from lakegate.progress import SilentNarrator
from lakegate.sources.synthetic import generate
from support.cli_support import PUBLISHED, REJECTED, invoke

ENDPOINT = "http://127.0.0.1:4566"
TABLE = "demo.trips"
CHECKS = ("not_null(passenger_count)",)
KEY = "landing/demo/trips/x-clean.parquet"
URI = f"s3://lakegate-demo/{KEY}"
FILE = DemoFile("clean", Path("x-clean.parquet"), "good", "published")
LETTER = DeadLetter(KEY, "ObjectCreated:Put", 3, "http://127.0.0.1/dead")


# --- its folder


def test_the_folder_leads_to_ministack_and_the_function_knows_no_address(tmp_path: Path) -> None:
    home = DemoHome(tmp_path / "demo")
    home.write(ENDPOINT, TABLE, CHECKS)
    settings = home.settings({"LAKEGATE_CATALOG_URI": "https://other.example.com", "LAKEGATE_LOCAL_SPARK_MEMORY": "2g"})
    assert (settings.catalog.uri, settings.local.spark_memory) == (None, "2g")
    assert (settings.catalog.warehouse, settings.s3.endpoint) == ("s3://lakegate-demo/warehouse", ENDPOINT)
    assert settings.tables[TABLE].checks == CHECKS
    packed = load_settings(home.function_settings.parent, env={})
    assert packed.tables[TABLE].checks == CHECKS
    assert packed.notify.group == "0s"
    assert "127.0.0.1" not in home.function_settings.read_text()


def test_the_demo_overwrites_itself_but_never_a_users_project(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    home.write(ENDPOINT, TABLE, CHECKS)
    home.write("http://127.0.0.1:5", TABLE, CHECKS)
    assert home.settings({}).s3.endpoint == "http://127.0.0.1:5"
    theirs = "[catalog]\n"
    (tmp_path / "lakegate.toml").write_text(theirs)
    with pytest.raises(ConfigurationError, match="is your own project; the demo would overwrite it") as caught:
        home.write(ENDPOINT, TABLE, CHECKS)
    assert caught.value.hint == "Choose another folder: lakegate demo --aws --dir FOLDER"
    with pytest.raises(ConfigurationError, match="is your own project; the demo would overwrite it"):
        home.clear()
    assert (tmp_path / "lakegate.toml").read_text() == theirs


def test_a_project_without_settings_is_left_alone_too(tmp_path: Path) -> None:
    (tmp_path / ".lakegate").mkdir()
    (tmp_path / ".lakegate" / "journal.db").write_text("")
    with pytest.raises(ConfigurationError, match="is your own project"):
        DemoHome(tmp_path).require_ours()


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="Can't use"):
        DemoHome(tmp_path / "file" / "demo").write(ENDPOINT, TABLE, CHECKS)


def test_starting_over_deletes_everything(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    home.write(ENDPOINT, TABLE, CHECKS)
    (tmp_path / ".lakegate" / "journal.db").write_text("")
    assert home.has_earlier_runs
    home.clear()
    assert not home.has_earlier_runs
    home.write(ENDPOINT, TABLE, CHECKS)


# --- its files


def test_one_file_is_clean_one_has_nulls_one_is_truncated(tmp_path: Path) -> None:
    first = make_files(tmp_path, generate, rows=1000)
    clean, nulls, truncated = first
    assert pq.read_table(clean.path).num_rows == 1000
    assert pq.read_table(nulls.path).column("passenger_count").null_count > 0
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(truncated.path)
    assert [file.expected for file in first] == ["published", "rejected", "dead-lettered"]
    assert {path.name for path in tmp_path.iterdir()} == {file.path.name for file in first}


def test_each_demo_has_different_files(tmp_path: Path) -> None:
    one, other = (make_files(tmp_path / name, generate, rows=1000)[0].path.read_bytes() for name in ("a", "b"))
    assert one != other


# --- its Slack


def test_the_stand_in_accepts_messages_only_on_its_secret_path() -> None:
    with slack_stand_in() as slack:
        assert httpx.post(slack.url, json={"text": "run r1"}).text == "ok"
        assert httpx.post(slack.url + "x", json={"text": "r2"}).status_code == 404
        assert httpx.post(slack.url, content=b"{").status_code == 400
        assert httpx.post(slack.url, content=b"x" * (2**20 + 1)).status_code == 404
        assert httpx.get(slack.url).status_code == 501
    assert slack.messages == [{"text": "run r1"}]
    assert slack.about("r1") == {"text": "run r1"}
    assert slack.about("r2") is None
    assert slack.url.startswith("http://127.0.0.1:")


def test_a_messages_text_is_shown() -> None:
    message = {
        "text": "fallback",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "demo.trips: rejected"}},
            {"type": "section", "fields": [{"type": "mrkdwn", "text": "*Rows*\n10"}]},
            {"type": "section", "text": {"type": "mrkdwn", "text": "`a_b` &amp; <https://x.example.com|report>"}},
            {"type": "divider"},
        ],
    }
    assert text_of(message) == ("demo.trips: rejected", "Rows: 10", "a_b & report")
    assert text_of({"text": "only this"}) == ("only this",)


# --- its waiting


class FakeCloud:
    def __init__(self, letter: DeadLetter | None = None) -> None:
        self.letter = letter

    def upload(self, _path: Path, key: str) -> str:
        return f"s3://lakegate-demo/{key}"

    def dead_letter(self, key: str) -> DeadLetter | None:
        return self.letter if self.letter and self.letter.key == key else None

    def log_tail(self, lines: int) -> Sequence[str]:
        return ["ImportError: no such module"]


class FakeLake:
    """Its runs end one check later."""

    def __init__(self, *statuses: str, uri: str = URI) -> None:
        self.statuses = list(statuses)
        self.uri = uri

    def runs(self, **_: object) -> Sequence[object]:
        if not self.statuses:
            return []
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return [SimpleNamespace(run_id="r1", status=status, request=SimpleNamespace(batch=SimpleNamespace(uris=[URI])))]


def waiter(lake: FakeLake, cloud: FakeCloud, timeout_s: float = 30.0) -> OutcomeWaiter:
    return OutcomeWaiter(cast("Lake", lake), cast("Cloud", cloud), SilentNarrator(), timeout_s=timeout_s)


def outcome(lake: FakeLake, cloud: FakeCloud, timeout_s: float = 30.0) -> Any:
    return waiter(lake, cloud, timeout_s).upload_and_wait(FILE, TABLE)


def test_a_file_is_waited_for_until_its_run_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.integrations.aws.demo._POLL_S", 0.0)
    found = outcome(FakeLake("running", "staged", "published"), FakeCloud())
    assert (found.outcome, found.run.run_id, found.letter) == ("published", "r1", None)


@pytest.mark.parametrize(
    ("lake", "cloud", "message"),
    [
        (FakeLake("rejected"), FakeCloud(), "was rejected but should have been published."),
        (FakeLake("failed"), FakeCloud(LETTER), "was dead-lettered but should have been published."),
        (FakeLake(), FakeCloud(), "wasn't published within 0 s."),
    ],
)
def test_failures_are_reported_with_the_functions_log(lake: FakeLake, cloud: FakeCloud, message: str) -> None:
    with pytest.raises(RetryableError) as caught:
        outcome(lake, cloud, timeout_s=0.0)
    assert caught.value.message == f"{URI} {message} The function's log ends:\n  ImportError: no such module"


# --- what it asks of AWS


def cloud_with(answers: Mapping[str, Any]) -> Cloud:
    clients = SimpleNamespace(sqs=SimpleNamespace(receive_message=lambda **_: answers))
    return Cloud({"Bucket": "b", "DeadLettersUrl": "http://127.0.0.1/dead", "LogGroup": "g"}, cast("Any", clients))


def test_a_dead_letter_is_found_by_its_objects_key() -> None:
    record = {"eventName": "ObjectCreated:Put", "s3": {"object": {"key": "landing/a+b%2B.parquet"}}}
    message = {"Body": json.dumps({"Records": [record]}), "Attributes": {"ApproximateReceiveCount": "4"}}
    cloud = cloud_with({"Messages": [{"Body": json.dumps({"Event": "s3:TestEvent"})}, message]})
    found = cloud.dead_letter("landing/a b+.parquet")
    assert found == DeadLetter("landing/a b+.parquet", "ObjectCreated:Put", 3, "http://127.0.0.1/dead")
    assert cloud.dead_letter("landing/other") is None
    assert cloud_with({}).dead_letter("landing/other") is None


def test_an_unsupported_machine_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    stack = SimpleNamespace()
    with pytest.raises(ConfigurationError, match="riscv64") as caught:
        demo.deploy(DemoHome(tmp_path), cast("Any", stack), "http://127.0.0.1/", SilentNarrator())
    assert "lakegate aws deploy" in str(caught.value.hint)


# --- the story


class FakeMiniStack:
    environment: Mapping[str, str] = {}
    log = Path("ministack.log")

    def __init__(self, home: Path, narrator: object) -> None:
        self.home = home

    def start(self) -> str:
        (self.home / ".lakegate" / "ministack").mkdir(parents=True, exist_ok=True)
        return ENDPOINT

    def stop(self) -> bool:
        return True


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """End the demo where it would start the local stack; return what was stopped."""
    told: list[str] = []
    fake_stack = SimpleNamespace(down=lambda: told.append("stack"))

    @contextmanager
    def opened(*_: object) -> Iterator[None]:
        raise RetryableError("Here the story would begin.")
        yield

    monkeypatch.setattr(demo, "MiniStack", FakeMiniStack)
    monkeypatch.setattr(demo, "local_stack", lambda *_: fake_stack)
    monkeypatch.setattr(demo, "_open_lake_and_cloud", opened)
    return told


@pytest.mark.parametrize(("deployed", "is_kept"), [(True, True), (False, False)])
def test_after_a_killed_ministack_the_demo_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: list[str], *, deployed: bool, is_kept: bool
) -> None:
    home = DemoHome(tmp_path)
    home.write(ENDPOINT, TABLE, CHECKS)
    journal = tmp_path / ".lakegate" / "journal.db"
    journal.write_text("")
    monkeypatch.setattr(demo, "is_deployed", lambda _: deployed)
    with pytest.raises(RetryableError, match="would begin"):
        run_demo(tmp_path, TABLE, CHECKS, SilentNarrator(), rows=1000, generate=generate)
    assert journal.exists() == is_kept
    assert stopped == ([] if is_kept else ["stack"])
    assert (tmp_path / ".lakegate" / "ministack").is_dir()


def test_the_first_demo_does_not_look_for_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: list[str]
) -> None:
    monkeypatch.delattr(demo, "is_deployed")
    with pytest.raises(RetryableError, match="would begin"):
        run_demo(tmp_path / "new", TABLE, CHECKS, SilentNarrator(), rows=1000, generate=generate)
    assert stopped == []
    assert (tmp_path / "new" / "lakegate.toml").is_file()


# --- the command


RUN = PUBLISHED.model_copy(update={"run_id": "r-clean"})
REJECTED_RUN = REJECTED.model_copy(update={"run_id": "r-nulls"})


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Path, int, str]]:
    """Records folder, rows and table of each demo, all with the same outcome."""
    monkeypatch.chdir(tmp_path)
    plays: list[tuple[Path, int, str]] = []
    outcomes = (
        Upload(FILE, URI, "published", RUN, None, 3.0),
        Upload(DemoFile("nulls", Path("n"), "NULLs", "rejected"), "s3://b/n", "rejected", REJECTED_RUN, None, 2.0),
        Upload(
            DemoFile("truncated", Path("t"), "cut", "dead-lettered"), "s3://b/t", "dead-lettered", None, LETTER, 9.0
        ),
    )

    def run_demo(folder: Path, table: str, *_: object, rows: int, **__: object) -> AwsDemo:
        plays.append((folder, rows, table))
        return AwsDemo(
            folder, ENDPOINT, "b", Path("/l/ministack.log"), outcomes, {"text": "r-nulls was rejected"}, (1000, 1000)
        )

    monkeypatch.setattr(demo, "run_demo", run_demo)
    return plays


def test_the_command_shows_each_file_the_alert_and_the_dead_letter(
    tmp_path: Path, played: list[tuple[Path, int, str]]
) -> None:
    outcome = invoke("demo --aws --rows 1000")
    assert outcome.exit_code == 0
    home = tmp_path / ".lakegate" / "demo-aws"
    assert played == [(home, 1000, TABLE)]
    for part in (
        "run r-clean",
        "run r-nulls",
        "the dead-letter queue",
        "r-nulls was rejected",
        f"ObjectCreated:Put of {KEY}",
        "received it 3 times",
        "1,000 rows",
        f"lakegate --home {home} runs r-nulls\n",
        f"lakegate --home {home} down\n",
    ):
        assert part in outcome.stdout


def test_the_command_prints_the_same_as_json(tmp_path: Path, played: list[tuple[Path, int, str]]) -> None:
    told = json.loads(invoke(f"demo --aws --dir {tmp_path / 'mine'} -o json").stdout)
    assert told["home"] == str(tmp_path / "mine")
    assert [(file["file"], file["outcome"]) for file in told["files"]] == [
        ("clean", "published"),
        ("nulls", "rejected"),
        ("truncated", "dead-lettered"),
    ]
    assert told["files"][0]["run"]["run_id"] == "r-clean"
    assert told["files"][2]["dead_letter"] == {"event": LETTER.event, "received": 3, "queue": LETTER.queue}
    assert told["alert"] == ["r-nulls was rejected"]
    assert told["rows_on_main"] == 1000


@pytest.mark.parametrize("option", ["--engine sc://h:1", "--catalog http://h/api/v2"])
def test_it_uses_nobodys_servers(played: list[tuple[Path, int, str]], option: str) -> None:
    outcome = invoke(f"{option} demo --aws")
    assert outcome.exit_code == 2
    assert "it brings its own Spark and catalog" in outcome.stderr
    assert played == []


def test_down_stops_the_demos_stack_and_ministack_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ".lakegate" / "demo-aws"
    home.mkdir(parents=True)
    stopped: list[Path] = []

    class OneRuns:
        def __init__(self, folder: Path, narrator: object) -> None:
            self.folder = folder

        def stop(self) -> bool:
            stopped.append(self.folder)
            return self.folder == home

    monkeypatch.setattr(down, "MiniStack", OneRuns)
    assert json.loads(invoke("down -o json").stdout) == {"stopped": ["spark", "nessie", "ministack"]}
    assert stopped == [tmp_path, home]
