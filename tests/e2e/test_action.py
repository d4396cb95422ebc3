"""The scripts inside ``action.yml``, run as GitHub's runner does: inputs as variables, outputs and summary in files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakegate.local.state import StackState
from support.deploy_files import ACTION, ROOT, load
from support.e2e_support import write_trips

_EXPRESSION = re.compile(r"\$\{\{ (?P<what>[\w.-]+) \}\}")
_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")


@dataclass(frozen=True)
class Ended:
    """How a step ended: exit code, outputs, summary and what it printed."""

    code: int
    outputs: Mapping[str, str]
    summary: str
    told: str

    @property
    def result(self) -> Any:
        return json.loads(self.outputs["result"])


def run_step(name: str, folder: Path, inputs: Mapping[str, str], **variables: str) -> Ended:
    """Run the step called ``name`` in ``folder``."""
    action = load(ACTION)
    [step] = [step for step in action["runs"]["steps"] if step.get("name") == name]
    known = {f"inputs.{key}": str(one.get("default", "")) for key, one in action["inputs"].items()}
    known |= {f"inputs.{key}": value for key, value in inputs.items()}
    known["github.action_path"] = str(ROOT)
    given = {key: _EXPRESSION.sub(lambda match: known[match["what"]], value) for key, value in step["env"].items()}
    files = {key: folder / key.lower() for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.touch()
    script = folder / "script.sh"
    script.write_text(step["run"], encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LAKEGATE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**kept, "PATH": path, "RUNNER_TEMP": str(folder), **given, **variables}
    env |= {key: str(file) for key, file in files.items()}
    done = subprocess.run([*_BASH, str(script)], cwd=folder, env=env, capture_output=True, text=True, check=False)
    written = files["GITHUB_OUTPUT"].read_text(encoding="utf-8")
    return Ended(
        code=done.returncode,
        outputs=dict(line.split("=", maxsplit=1) for line in written.splitlines()),
        summary=files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8"),
        told=done.stdout + done.stderr,
    )


@pytest.fixture
def project(home: Path, stack: StackState) -> dict[str, str]:
    return {"home": str(home)}


@pytest.mark.jvm
def test_a_batch_is_published_and_reported(project: dict[str, str], namespace: str, tmp_path: Path) -> None:
    write_trips(tmp_path / "monday file.parquet", 100)
    write_trips(tmp_path / "-tuesday.parquet", 50, start=100)
    given = {
        "table": f"{namespace}.trips",
        "paths": "monday file.parquet\n-tuesday.parquet\n\n",
        "checks": "not_null(id)\nsql('passengers < 0')\n",
        "partition-by": "days(pickup)",
        "on-busy": "skip",
    }
    ended = run_step("Ingest", tmp_path, project | given)
    assert ended.code == 0, ended.told
    assert (ended.outputs["status"], ended.result["rows"]["published"]) == ("published", 150)
    assert ended.outputs["run-id"] == ended.result["run_id"]
    assert f"{namespace}.trips: published" in ended.summary
    assert "150 rows published" in ended.summary
    assert "| not_null(id) | error | pass | 0 | 150 |" in ended.summary
    assert "passengers &lt; 0" in ended.summary


@pytest.mark.jvm
def test_a_rejected_batch_fails_the_step_and_is_reported(
    project: dict[str, str], namespace: str, tmp_path: Path
) -> None:
    write_trips(tmp_path / "a.parquet", 100, nulls=3)
    given = {"table": f"{namespace}.trips", "paths": "*.parquet", "checks": "not_null(passengers)"}
    address = {"LAKEGATE_UI_URL": "https://lake.example.com"}
    ended = run_step("Ingest", tmp_path, project | given | {"branch": f"wap/{namespace}"}, **address)
    assert ended.code == 1, ended.told
    assert ended.outputs["status"] == "rejected"
    assert f"waits on branch wap/{namespace}." in ended.summary
    assert "| not_null(passengers) | error | fail | 3 | 100 |" in ended.summary
    assert ended.outputs["link"] == f"https://lake.example.com/run?run={ended.outputs['run-id']}"
    assert f"[Report of the run](<{ended.outputs['link']}>)" in ended.summary
    assert ended.outputs["link"] in Path(ended.outputs["report"]).read_text(encoding="utf-8")
    assert 'failures="1"' in Path(ended.outputs["junit"]).read_text(encoding="utf-8")


@pytest.mark.jvm
def test_inputs_are_no_commands(project: dict[str, str], namespace: str, tmp_path: Path) -> None:
    write_trips(tmp_path / "a.parquet", 10)
    given = {
        "table": f"{namespace}.trips",
        "paths": "a.parquet\n$(touch pwned)\n`touch pwned`; touch pwned\n--dry-run",
        "checks": '"; touch pwned; "\n<b>|x|</b>',
    }
    ended = run_step("Ingest", tmp_path, project | given)
    assert ended.code == 2, ended.told
    assert not (tmp_path / "pwned").exists()
    assert (ended.outputs["status"], ended.outputs["run-id"]) == ("error", "")
    assert ended.result["error"]["message"] in ended.told
    assert "<b>" not in ended.summary


def test_a_command_that_is_killed_is_an_error_too(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "lakegate"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nkill -9 $$\n")
    fake.chmod(0o755)
    path = os.pathsep.join([str(fake.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = run_step("Ingest", tmp_path, {"table": "nyc.trips", "paths": "a"}, PATH=path)
    assert ended.code == 137
    assert ended.outputs["status"] == "error"
    assert "without a result" in ended.summary


@pytest.mark.parametrize(("version", "installed"), [("", str(ROOT)), ("0.1.0", "lakegate==0.1.0")])
def test_the_version_asked_for_is_installed(version: str, installed: str, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor word; do last=$word; done\necho "$1 $2 $3 [$last]"\n')
    fake.chmod(0o755)
    path = os.pathsep.join([str(fake.parent), os.environ["PATH"]])
    ended = run_step("Install lakegate", tmp_path, {"version": version}, PATH=path)
    assert (ended.code, ended.told) == (0, f"-m pip install [{installed}]\n")
