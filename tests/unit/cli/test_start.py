"""``lakegate up``, ``down``, ``status``, ``generate``, ``demo``, ``config``, ``version`` and ``completion``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import MagicMock

import pytest
from click.testing import Result

from lakegate import connect
from lakegate.errors import InputError
from lakegate.local import process
from lakegate.local.process import MarkedServer
from lakegate.model.refs import Ref
from lakegate.model.run import Run
from lakegate.sources import synthetic
from support.cli_support import BRANCH, HASH, PUBLISHED, REJECTED, SKIPPED, FakeLake, FakeStack, invoke, printed

pytestmark = pytest.mark.usefixtures("in_a_project")


def test_stack_commands_show_no_token() -> None:
    stack = FakeStack()
    for words in ("up", "status", "status -o json", "up -o json"):
        outcome = invoke(words, stack=stack)
        assert outcome.exit_code == 0
        assert "s3cret" not in outcome.stdout
        assert "sc://localhost:2/;token=…" in outcome.stdout
    assert stack.ups == 2
    assert json.loads(invoke("down -o json").stdout) == {"stopped": ["spark", "nessie"]}
    assert "Nothing was running" in invoke("down", stack=FakeStack("stopped")).stderr
    assert "/l/nessie.log" in invoke("status", stack=FakeStack("unresponsive")).stdout


def test_status_of_all_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [MarkedServer("/b c", "spark", os.getpid()), MarkedServer("/a", "nessie", os.getpid())]
    monkeypatch.setattr(process, "find_servers", lambda: servers)
    told = json.loads(invoke("status --all -o json").stdout)
    assert [(one["home"], one["name"], one["pid"]) for one in told] == [
        ("/a", "nessie", os.getpid()),
        ("/b c", "spark", os.getpid()),
    ]
    assert all(one["uptime_s"] > 0 and one["memory_bytes"] > 0 for one in told)
    assert "lakegate --home /a down" in invoke("status --all").stdout

    narrow = printed(["status", "--all"], None, monkeypatch, columns=30)[0].splitlines()
    assert [line.split() for line in narrow[2:4]] == [
        ["/a", "nessie", str(os.getpid())],
        ["/b", "c", "spark", str(os.getpid())],
    ]

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(process, "find_servers", lambda: [MarkedServer("/a", "nessie", ended.pid)])
    assert "Nothing is running." in invoke("status --all").stderr
    monkeypatch.setattr(process, "find_servers", list)
    assert "Nothing is running." in invoke("status --all").stderr


def test_config_show_shows_origins_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakegate.toml").write_text(
        '[catalog]\nuri = "http://u:hunter2@h/api/v2"\ntoken = "hunter2"\n'
        'oauth2_client_secret = "hunter2"\n[journal]\npassword = "hunter2"\n[engine]\ntoken = "file:/run/secrets/x"\n'
        '[tables."nyc.trips"]\nchecks = ["unique(id)"]\n'
    )
    monkeypatch.setenv("LAKEGATE_LOCAL_NESSIE_MEMORY", "1g")
    outcome = invoke("--engine sc://h:1/;token=hunter2 admin config show -o json")
    told = json.loads(outcome.stdout)
    assert "hunter2" not in outcome.stdout
    assert told["engine.url"] == {"value": "sc://h:1/;token=…", "origin": "flag"}
    assert told["engine.token"]["value"] == "file:/run/secrets/x"
    assert told["journal.password"]["value"] == "(hidden: not a reference such as env:NAME)"
    assert told["local.nessie_memory"] == {"value": "1g", "origin": "LAKEGATE_LOCAL_NESSIE_MEMORY"}
    assert told["catalog.uri"]["origin"] == "lakegate.toml"
    assert told["ingest.on_failure"] == {"value": "keep", "origin": "default"}
    assert told['tables."nyc.trips".checks'] == {"value": ["unique(id)"], "origin": "lakegate.toml"}
    assert "engine.url" in invoke("admin config show").stdout
    assert invoke("admin config path").stdout == f"{tmp_path / 'lakegate.toml'}\n"


def test_a_wrong_settings_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "lakegate.toml").write_text("[engin]\n")
    outcome = invoke("admin config show")
    assert outcome.exit_code == 2
    assert "did you mean 'engine'" in outcome.stderr


def test_version() -> None:
    assert set(json.loads(invoke("admin version -o json").stdout)) >= {"lakegate", "python", "pyspark", "pyiceberg"}
    assert invoke("--version").stdout.startswith("lakegate ")


def demo(clean: Run, dirty: Run, words: str = "demo") -> tuple[Result, FakeStack, list[dict[str, Any]]]:
    generated: list[dict[str, Any]] = []

    def generate(folder: Path, **options: Any) -> tuple[Path, ...]:
        generated.append({"folder": folder, **options})
        return (folder / "x.parquet",)

    stack = FakeStack()
    branches = [(Ref(name="main", hash=HASH), 200_000), (Ref(name=BRANCH, hash=HASH), 300_000)]
    lake = FakeLake(ingest=[clean, dirty], branches_row_counts=branches)
    with mock.patch.object(synthetic, "generate", generate):
        return invoke(words, lake, stack=stack), stack, generated


def test_demo_publishes_rejects_and_suggests_commands(tmp_path: Path) -> None:
    outcome, stack, generated = demo(PUBLISHED, REJECTED)
    assert outcome.exit_code == 0
    assert stack.ups == 1
    assert [(one["files"], one["null_rate"]) for one in generated] == [(2, 0.0), (1, 0.01)]
    assert generated[0]["folder"] == tmp_path / ".lakegate" / "demo" / "clean"
    for part in ("published", "rejected", "1,003", BRANCH, "300,000", f"lakegate discard {BRANCH}\n"):
        assert part in outcome.stdout
    told = json.loads(demo(PUBLISHED, REJECTED, "demo -o json")[0].stdout)
    assert told["rows_per_branch"][1] == {"branch": BRANCH, "rows": 300_000}


@pytest.mark.parametrize(("clean", "dirty"), [(PUBLISHED, PUBLISHED), (REJECTED, REJECTED), (PUBLISHED, SKIPPED)])
def test_demo_fails_when_the_gate_does_not_hold(clean: Run, dirty: Run) -> None:
    outcome, _, _ = demo(clean, dirty)
    assert outcome.exit_code != 0
    assert "should have been" in outcome.stderr


def test_checks_are_listed_and_explained() -> None:
    listed = invoke("checks").stdout
    assert all(name in listed for name in ("not_null", "in_range", "relationships"))
    shown = invoke("checks in_range").stdout
    assert "in_range(column, min, max, inclusive=True)" in shown
    assert "With inclusive=False, values equal to min or max fail." in shown
    assert "in_range(pickup, min='2024-01-01')" in shown
    assert json.loads(invoke("checks not_null -o json").stdout)["signature"] == "not_null(column, …)"
    assert len(json.loads(invoke("checks -o json").stdout)) > 7
    outcome = invoke("checks not_nul")
    assert outcome.exit_code == 2
    assert "Did you mean 'not_null'?" in outcome.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(
            "log",
            "runs",
            "query SELECT",
            "table",
            "branch create b",
            "publish wap/x",
            "admin gc",
            "admin journal status",
            "serve",
        ),
        *("admin maintain", "table truncate a.b --yes", "table delete a.b --where id=1"),
    ],
)
def test_commands_that_need_a_project_create_none(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (tmp_path / ".lakegate").rmdir()
    monkeypatch.chdir(folder)
    outcome = invoke(words, FakeLake())
    assert outcome.exit_code == 2
    assert f"There's no lakegate project in {folder}" in outcome.stderr
    assert "lakegate demo" in outcome.stderr
    assert not list(folder.iterdir())


def test_a_job_may_be_the_first_that_writes_to_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (tmp_path / ".lakegate").rmdir()
    monkeypatch.chdir(folder)
    assert "opened" in invoke("gate run -- true", FakeLake(gate=InputError("opened"))).stderr


def test_a_catalog_elsewhere_needs_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lakegate").rmdir()
    monkeypatch.setenv("LAKEGATE_CATALOG_URI", "http://nessie.example:19120/api/v2")
    assert invoke("branch", FakeLake(branches_list=[])).exit_code == 0


def test_a_new_project_is_announced_when_it_is_created(tmp_path: Path) -> None:
    narrator = MagicMock()
    home = tmp_path / "new"
    home.mkdir()
    with connect(home, narrator=narrator) as lake:
        with pytest.raises(InputError, match="doesn't exist"):
            lake.ingest("nyc.trips", "typo.parquet")
        assert (narrator.note.mock_calls, list(home.iterdir())) == ([], [])
        lake.runs()
    with connect(home, narrator=narrator) as lake:
        lake.runs()
    narrator.note.assert_called_once_with(f"New project in {home}: tables and history go to .lakegate/ there.")
