"""Errors of commands, and what all commands have in common."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import click
import pytest

from lakegate.cli import main
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.errors import (
    AuditFailedError,
    CatalogUnavailableError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    QueryError,
)
from support.cli_support import FakeLake, invoke

pytestmark = pytest.mark.usefixtures("in_a_project")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AuditFailedError("no"), 1),
        (NotFoundError("no"), 2),
        (ConflictError("no"), 3),
        (OutcomeUnknownError("no"), 4),
        (KeyboardInterrupt("Branch wap/x was removed."), 130),
        (RuntimeError("bug"), 70),
        (EOFError("truncated"), 70),
    ],
)
def test_errors_become_exit_codes_without_traceback(error: BaseException, code: int) -> None:
    outcome = invoke("publish b -o json", FakeLake(publish=error))
    assert outcome.exit_code == code
    assert "Traceback" not in outcome.stderr
    assert "error:" in outcome.stderr
    told = json.loads(outcome.stdout)["error"]
    assert set(told) == {"code", "message", "hint", "context"}
    assert told["message"] in outcome.stderr
    plain = invoke("publish b", FakeLake(publish=error))
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert "Traceback" in invoke("publish b --debug", FakeLake(publish=error)).stderr


def test_a_traceback_has_no_secrets_of_other_programs() -> None:
    error = CatalogUnavailableError("The catalog doesn't respond.")
    error.__cause__ = OSError("GET https://me:hunter2@host/?X-Amz-Signature=0f3a5 failed")
    shown = invoke("publish b --debug", FakeLake(publish=error)).stderr
    assert "OSError: GET https://…@host/?X-Amz-Signature=… failed" in shown
    assert "hunter2" not in shown
    plain = invoke("publish b -o json", FakeLake(publish=RuntimeError("GET https://me:hunter2@host/ failed")))
    assert "internal error: RuntimeError: GET https://…@host/ failed" in plain.stderr
    assert "hunter2" not in plain.output


def test_what_the_engine_said_is_shown_on_the_terminal_only() -> None:
    error = QueryError("Spark rejected the query: CAST_INVALID_INPUT.", detail="The value 'hush' cannot be cast.")
    error.__cause__ = OSError("The value 'hush' cannot be cast.")
    shown = invoke("publish b -o json", FakeLake(publish=error))
    assert "cause: The value 'hush' cannot be cast." in shown.stderr
    assert "hush" not in shown.stdout
    logged = invoke("publish b --log-format json --debug", FakeLake(publish=error))
    assert "CAST_INVALID_INPUT" in logged.stderr
    assert "hush" not in logged.output


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_in_errors_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = QueryError("Column 'a\x1b]0;b\x07' is new:\n- it's a \u202edouble", hint="Drop 'a\x1b]0;b\x07'.")
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    main.report(error, App())
    shown = "error: Column 'a\\x1b]0;b\\x07' is new:\n- it's a \\u202edouble\nhint:  Drop 'a\\x1b]0;b\\x07'.\n"
    assert terminal.getvalue() == shown


@pytest.mark.parametrize("words", ["runs", "runs --nope", "ingest nyc.trips a.csv", "admin config show"])
def test_in_a_folder_that_was_deleted_commands_say_so(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    outcome = invoke(words)
    assert outcome.exit_code == 2
    assert ("No such option" if "--nope" in words else "error: The current folder no longer exists.") in outcome.stderr


@pytest.mark.parametrize(
    ("words", "method", "has_run"),
    [
        ("table delete nyc.trips --where x", "delete_rows", True),
        ("revert 20260131T070509-1a2b3c4d", "revert", True),
        ("branch delete old", "branches_delete", False),
        ("table list", "tables", False),
    ],
)
def test_an_interrupt_points_at_the_run_if_the_command_makes_one(words: str, method: str, has_run: bool) -> None:
    outcome = invoke(words, FakeLake(**{method: KeyboardInterrupt()}))
    assert outcome.exit_code == 130
    assert ("To see how far the run got: lakegate runs" in outcome.stderr) == has_run


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("ingset a b", "Did you mean one of: 'ingest', 'inspect'?"),
        ("dif a b", "Did you mean 'diff'?"),
        ("recover", "Did you mean 'admin recover'?"),
        ("ingest a b --chek x", "'--check'"),
        ("branch lst", "list"),
        ("ingest", "Missing argument 'TABLE'"),
        ("table connect nyc.trips", "Missing option '--engine' / '-e'. Choose from: pyiceberg, duckdb, "),
    ],
)
def test_mistyped_commands_suggest_the_nearest(words: str, part: str) -> None:
    outcome = invoke(words)
    assert outcome.exit_code == 2
    assert part in outcome.stderr
    assert "--help" in outcome.stderr


def test_usage_errors_are_json_too_when_json_was_asked_for() -> None:
    outcome = invoke("ingest nyc.trips --nope -o json")
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["error"]["code"] == "usage"


def test_every_command_has_help_with_examples() -> None:
    commands = [([name], cli.get_command(click.Context(cli), name)) for name in cli.summaries]
    for words, command in commands:
        outcome = invoke([*words, "-h"])
        assert outcome.exit_code == 0, f"{words}: {outcome.output} {outcome.exception!r}"
        assert f"Examples:\n  {'bash:' if words[-1] == 'completion' else 'lakegate'}" in outcome.stdout, words
        if isinstance(command, click.Group):
            commands += [([*words, name], inner) for name, inner in command.commands.items()]
            assert "..." not in outcome.stdout.partition("Commands:")[2].partition("Examples:")[0], words
    text = invoke("--help").stdout
    assert all(f"  {name} " in text and summary in text for name, summary in cli.summaries.items())


def test_messages_and_docs_name_the_commands_of_admin_in_full() -> None:
    root = Path(__file__).parents[3]
    names = [path.stem for path in (root / "src/lakegate/cli/admin").glob("[a-z]*.py")]
    short = re.compile(rf"(?<!a )\blakegate (?:{'|'.join(names)})\b")
    pages = (*(root / "src").rglob("*.py"), *(root / "docs").rglob("*.md"), root / "README.md")
    found = {page.name: short.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: commands for name, commands in found.items() if commands} == {}


def test_global_options_work_before_and_after_the_command(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    homes = str(tmp_path), f"{tmp_path}/below/.."
    for words in (["--home", homes[0], "runs"], ["runs", "--home", homes[0]], ["--home", homes[1], "runs"]):
        lake = FakeLake(runs=[])
        assert invoke(words, lake).exit_code == 0
        assert lake.opened_with["home"] == tmp_path
    assert invoke("--home /nowhere/at/all runs").exit_code == 2
