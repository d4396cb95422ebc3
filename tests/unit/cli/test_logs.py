"""``--log-format json``: standard error is one JSON object per line, and nothing else."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from lakegate.errors import ConflictError
from lakegate.progress import FIELDS, bound_to
from support.cli_support import BRANCH, INGEST, PUBLISHED, RUN_ID, FakeLake, invoke

pytestmark = pytest.mark.usefixtures("in_a_project")
JSON = ["--log-format", "json"]


def lines(outcome: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.stderr.splitlines()]


class TalkingLake(FakeLake):
    """Logs, warns and prints on the way, as libraries do."""

    def ingest(self, *_: Any, **__: Any) -> Any:
        narrator = self.opened_with["narrator"]
        with bound_to(PUBLISHED), narrator.step("Writing"):
            click.echo("raw text", err=True)
            sys.stderr.write("without an end")
            warnings.warn("old API", FutureWarning, stacklevel=1)
            logging.getLogger("library").warning("slow answer")
            logging.getLogger("library").info("chatter")
            logging.getLogger("lakegate.wap.session").info("Run ended")
        return PUBLISHED


@pytest.mark.filterwarnings("default::FutureWarning")
def test_everything_on_standard_error_becomes_lines() -> None:
    outcome = invoke([*INGEST, *JSON, "-o", "json"], TalkingLake())
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout)["run_id"] == RUN_ID
    told = lines(outcome)
    assert all(tuple(line)[: len(FIELDS)] == FIELDS for line in told)
    assert all((line["run_id"], line["table"], line["branch"]) == (RUN_ID, "nyc.trips", BRANCH) for line in told[:-2])
    assert {line["command"] for line in told} == {"ingest"}
    events = [line["event"] for line in told]
    assert [event for event in events if "old API" not in event] == [
        "Writing",
        "raw text",
        "slow answer",
        "Run ended",
        "Writing",
        "without an end",
        "Ended with exit code 0",
    ]
    assert len(events) == 8
    assert (told[-1]["run_id"], told[-1]["exit_code"]) == (RUN_ID, 0)


def test_an_error_is_one_line_with_all_its_facts() -> None:
    error = ConflictError("main moved.", hint="Try again.", run_id=RUN_ID, branch="b", table="nyc.trips", files=["a"])
    outcome = invoke(["publish", "b", *JSON], FakeLake(publish=error))
    assert (outcome.exit_code, outcome.stdout) == (3, "")
    told, ended = lines(outcome)
    expected = {
        "level": "error",
        "event": "main moved.",
        "command": "publish",
        "run_id": RUN_ID,
        "branch": "b",
        "table": "nyc.trips",
        **error.to_dict(),
        "exit_code": 3,
    }
    assert {key: told[key] for key in expected} == expected
    assert (ended["event"], ended["exit_code"]) == ("Ended with exit code 3", 3)


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [(KeyboardInterrupt("Gone."), "interrupted", 130), (ZeroDivisionError("x"), "internal", 70)],
)
def test_every_outcome_is_a_line(error: BaseException, code: str, exit_code: int) -> None:
    outcome = invoke(["publish", "b", *JSON], FakeLake(publish=error))
    assert outcome.exit_code == exit_code
    assert [line.get("code") for line in lines(outcome)] == [code, None]
    debugged = lines(invoke(["publish", "b", *JSON, "--debug"], FakeLake(publish=error)))
    assert "Traceback" in debugged[0]["exception"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("ingest nyc.trips --nope a --log-format json", "ingest"),
        ("--log-format=json branch lst", "branch"),
        ("--log-format json ingset", None),
        ("--log-format json", None),
    ],
)
def test_mistyped_commands_are_lines_too(words: str, command: str | None) -> None:
    outcome = invoke(words)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    told = lines(outcome)
    assert [(line["command"], line.get("code")) for line in told] == [(command, "usage"), (command, None)]


def test_settings_and_variables_choose_the_format_and_flags_override_them(
    in_a_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = in_a_project / "lakegate.toml"
    settings.write_text('[log]\nformat = "json"\n')
    assert lines(invoke(INGEST, FakeLake(ingest=PUBLISHED)))[-1]["exit_code"] == 0
    assert lines(invoke("ingset"))[0]["code"] == "usage"
    assert invoke([*INGEST, "--log-format", "text"], FakeLake(ingest=PUBLISHED)).stderr == ""
    monkeypatch.setenv("LAKEGATE_LOG_FORMAT", "text")
    assert invoke(INGEST, FakeLake(ingest=PUBLISHED)).stderr == ""
    monkeypatch.setenv("LAKEGATE_LOG_FORMAT", "json")
    settings.write_text("[engin]\n")
    assert lines(invoke("admin config show"))[0]["code"] == "configuration"
    monkeypatch.setenv("LAKEGATE_LOG_FORMAT", "xml")
    settings.unlink()
    assert "'log.format': must be 'text' or 'json'" in invoke("admin config show").stderr
    assert invoke("admin config show --log-format xml").exit_code == 2


def test_secrets_that_settings_refer_to_are_in_no_line(in_a_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_a_project / "lakegate.toml").write_text('[catalog]\ntoken = "env:NESSIE_TOKEN"\n')
    monkeypatch.setenv("NESSIE_TOKEN", "hunter22")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter33")
    error = RuntimeError("the server said: hunter22 and hunter33 are wrong")
    outcome = invoke(["publish", "b", *JSON, "--debug"], FakeLake(publish=error))
    assert "hunter" not in outcome.stderr
    assert "are wrong" in lines(outcome)[0]["event"]
