"""Exit codes of real processes whose output can't be written: the outcome of the work stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The real entry point, with a lake that ingests nothing: each run ends with its table's name as its status.
PROGRAM = """
import functools, os, sys
from lakegate.cli import main
from lakegate.cli.app import App
from tests.support import cli_support as given
class Lake(given.FakeLake):
    def ingest(self, table, *paths, **options):
        ends = {
            "a.published": given.make_run("published", publication=given.PUBLICATION, reports=(given.PASSED,)),
            "a.rejected": given.make_run("rejected", reports=(given.FAILED,), branch_kept=True),
        }
        return ends[str(table)]
main.cli.main = functools.partial(main.cli.main, obj=App(connect=lambda *_, **__: Lake()))
main.main()
"""
STDOUT = {
    "closed": ">&-",
    "full": ">/dev/full",
    "unread": "| true",
}

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    Path("x.parquet").touch()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def shell(words: str, redirections: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run lakegate with ``words`` in bash; its exit code is the command's own, also before a pipe."""
    line = f"'{sys.executable}' program.py {words} {redirections}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, text=True, check=False, env=os.environ | variables, timeout=60
    )


@pytest.mark.parametrize("kind", STDOUT)
def test_lost_output_does_not_change_the_verdict(kind: str) -> None:
    published = shell("ingest a.published x.parquet", STDOUT[kind])
    rejected = shell("ingest a.rejected x.parquet -o json", STDOUT[kind])
    assert (published.returncode, rejected.returncode) == (141 if kind == "unread" else 5, 1)
    assert "Traceback" not in published.stderr + rejected.stderr
    if kind in {"closed", "full"}:
        assert "is published." in published.stderr
        assert "is rejected." in rejected.stderr
    else:
        assert published.stderr == ""


def test_standard_error_that_fails_changes_nothing() -> None:
    published = shell("--log-format json ingest a.published x.parquet -o json", "2>/dev/full")
    rejected = shell("--log-format json ingest a.rejected x.parquet -o json", "2>/dev/full")
    assert (published.returncode, rejected.returncode) == (0, 1)
    assert json.loads(published.stdout)["status"] == "published"
    assert json.loads(rejected.stdout)["status"] == "rejected"
    wrong = shell("ingest nonsense x.parquet -o json --delimiter abc", "2>/dev/full")
    assert (wrong.returncode, json.loads(wrong.stdout)["error"]["code"]) == (2, "usage")
