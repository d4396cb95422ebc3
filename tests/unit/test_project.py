"""The project around the code: workflows, templates, the docs site, and the version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from lakegate import __version__
from lakegate.checks.registry import built_in, find_check
from support.deploy_files import ROOT, load

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "ISSUE_TEMPLATE" / "feature.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_the_code_host_fit_their_schemas(schema: str) -> None:
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", schema, *map(str, SCHEMAS[schema])])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", sorted({*built_in()} - {"schema_changes", "volume_anomalies"}))
def test_what_a_check_finds_is_compared_with_python(name: str) -> None:
    """Two look at no rows, but at the journal."""
    proofs = ROOT / "tests" / "proofs"
    text = "".join((proofs / module).read_text(encoding="utf-8") for module in ("asked.py", "reference.py"))
    wanted = f"checks.{find_check(name).__name__}("
    assert wanted in text, f"add a line with {wanted}…) to tests/proofs/reference.py"


def steps(workflow: Any) -> Iterator[Any]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_pinned_bounded_and_have_few_permissions(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_make_has_the_targets_of_the_workflows() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {
        target
        for path in WORKFLOWS
        for step in steps(load(path))
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    }
    assert used <= targets
    assert {"lint", "test-unit", "test-jvm", "demo", "docs", "dist"} == used


def test_the_site_has_every_page() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(inner)

    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert there == set(pages(site["nav"]))


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/lakegate/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
