"""The documentation, held to what it says: its commands run, its links lead somewhere, its tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from e2e import docs_checks, docs_cli, docs_neighbours, docs_pages, docs_settings
from e2e.docs_pages import ROOT, Block
from lakegate import __version__
from lakegate.cli.main import INTERNAL
from lakegate.config import FILE_NAME, Settings
from lakegate.contracts.store import FOLDER, parse_contract
from lakegate.errors import ExitCode
from lakegate.local.state import StackState
from lakegate.model.checks import CheckResult
from support import prefect_server, warm

PAGES = docs_pages.pages()
RUN_PAGES = [page for page in PAGES if page in ("README.md", "docs/tutorial.md") or page.startswith("docs/how-to/")]
_COLD_PAGES = ("README.md",)
"""The page whose commands start as a user's do."""
_PREFECT_PAGE = "docs/how-to/run-with-prefect.md"
_LANGUAGES = {"console", "ini", "json", "python", "text", "toml", "yaml"}
_SHOWN = ("action.yml", "deploy/**/*")
_TIMEOUT_S = 240
_BLOCKS = """
import json, sys, types

for place, text in json.loads(sys.argv.pop()):
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    try:
        exec(compile(text, place, "exec"), main.__dict__)
    except SystemExit as end:  # of this text, not of those after it
        if end.code:
            raise
"""
"""Runs texts one after the other, none of which knows the names of another."""
_DBOS = f"-m {warm.DBOS}"
_EXIT_ROW = re.compile(r"^\| (\d+) \| ([A-Z_]+) \|", re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


class Runner:
    """A project folder in which a page's blocks are run, as a reader would; ``programs`` come before those of PATH."""

    def __init__(self, folder: Path, home: Path, programs: Path | None) -> None:
        self._folder = folder
        self._python = (sys.executable,) if programs is None else warm.python(warm.DBOS)
        self._home = home
        self._path = os.pathsep.join(
            [*([str(programs)] if programs else []), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        self._progress = folder / ".commands-begun"

    def run(self, blocks: Iterable[Block]) -> None:
        for kind, alike in groupby(blocks, _what_to_do):
            if kind == "python":
                self._run_python(list(alike))
                continue
            for block in alike:
                if block.file is not None:
                    self._write(block.file, block.text)
                else:
                    self._run_console(block)

    def _write(self, name: str, text: str) -> None:
        # Settings belong to the project, whose folder all pages share: a page has a folder in it.
        folder = self._home if name == FILE_NAME or name.startswith(f"{FOLDER}/") else self._folder
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        if name == "pyproject.toml":
            self._install(tomllib.loads(text)["project"])

    def _install(self, project: dict[str, object]) -> None:
        """Do what matters of ``pip install .``: register the entry points."""
        info = self._folder / f"{str(project['name']).replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
        groups = project["entry-points"]
        assert isinstance(groups, dict)
        lines = (
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
        )
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _run_python(self, blocks: Sequence[Block]) -> None:
        """Run blocks that follow each other in one process; each is a program of its own."""
        assert not any(block.exit_code for block in blocks)
        texts = json.dumps([(block.place, block.text) for block in blocks])
        self._run([*self._python, "-c", _BLOCKS, texts], blocks[-1])

    def _run_console(self, block: Block) -> None:
        commands = block.commands
        assert commands, f"{block.place}: a console block without a command ('$ …')"
        lines = [f"echo {number} > '{self._progress}'\n{command}" for number, command in enumerate(commands, 1)]
        self._run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(lines)], block)
        begun = int(self._progress.read_text(encoding="utf-8"))
        assert begun == len(commands), f"{block.place}: '{commands[begun - 1]}' ended the block before its last command"

    def _run(self, command: list[str], block: Block) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LAKEGATE_")}
        env = {
            **kept,
            "PATH": self._path,
            "PYTHONPATH": str(self._folder),
            "COLUMNS": "120",
        }
        done = subprocess.run(
            command, cwd=self._folder, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        said = f"{block.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == block.exit_code, f"{block.place}: exit code {done.returncode}\n{said}"


def _what_to_do(block: Block) -> str | None:
    return "python" if block.language == "python" and block.file is None else None


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ``lakegate`` and a ``python -m lakegate.integrations.dbos`` that start warm."""
    folder = tmp_path_factory.mktemp("programs")
    python = shlex.join(warm.python(warm.DBOS))
    cold = shlex.quote(sys.executable)
    for name, text in (
        ("lakegate", f'exec {python} -m {warm.CLI} "$@"'),
        ("python", f'[ "$1 $2" = "{_DBOS}" ] && exec {python} "$@"\nexec {cold} "$@"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def _is_run(block: Block) -> bool:
    if block.same_as is not None:
        return False
    return block.file is not None or (block.skipped is None and block.language in {"console", "python"})


@pytest.fixture
def runner(
    request: pytest.FixtureRequest, page: str, home: Path, stack: StackState, programs: Path
) -> Iterator[Runner]:
    folder = home / re.sub(r"\W+", "-", request.node.name)
    folder.mkdir()
    if page == _PREFECT_PAGE:
        prefect = folder / ".prefect" / "prefect.db"
        prefect.parent.mkdir()
        prefect_server.fill(prefect)
    yield Runner(folder, home, None if page in _COLD_PAGES else programs)
    (home / FILE_NAME).unlink(missing_ok=True)
    shutil.rmtree(home / FOLDER, ignore_errors=True)


@pytest.mark.jvm
@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, runner: Runner) -> None:
    runner.run(block for block in docs_pages.blocks(page) if _is_run(block))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    text = read(page)
    found = list(docs_pages.blocks(page))
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE))
    for block in found:
        assert block.language in _LANGUAGES, block.place
        assert block.file is not None or block.language != "console" or block.commands, block.place
        # What no test runs must be somebody's file, or say why not.
        assert block.language not in {"ini", "yaml"} or block.file or block.same_as or block.skipped, block.place
    said = len(re.findall(r"^<!-- (?:exit|not run|file|same as): ", text, re.MULTILINE))
    assert said == sum(bool(b.file or b.same_as or b.skipped or b.exit_code) for b in found)


@pytest.mark.parametrize("page", PAGES)
def test_files_in_a_page_are_those_of_the_checkout(page: str) -> None:
    for block in docs_pages.blocks(page):
        if block.same_as is not None:
            assert block.text == read(block.same_as), f"{block.place}: {block.same_as}"


def test_every_example_is_in_a_page() -> None:
    shown = {ROOT / block.same_as for page in PAGES for block in docs_pages.blocks(page) if block.same_as}
    shown |= {((ROOT / page).parent / link).resolve() for page in PAGES for link in docs_pages.links(page)}
    found = (path for glob in _SHOWN for path in ROOT.glob(glob) if path.is_file())
    files = {path for path in found if "secrets" not in path.parts}
    assert len(files) > 1
    assert [path for path in files if not shown & {path, *path.parents[: -len(ROOT.parts)]}] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT / page
    for target in docs_pages.links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        leads_to = (here.parent / path).resolve() if path else here
        assert leads_to.exists(), f"{page}: {target}"
        assert not anchor or anchor in docs_pages.anchors(leads_to), f"{page}: {target}"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached = {"README.md"}
    todo = ["README.md"]
    while todo:
        here = ROOT / todo.pop()
        targets = (target.partition("#")[0] for target in docs_pages.links(here.relative_to(ROOT).as_posix()))
        for path in ((here.parent / target).resolve() for target in targets if target and "://" not in target):
            listed = sorted(path.glob("*.md")) if path.is_dir() else [path]
            new = {one.relative_to(ROOT).as_posix() for one in listed if one.suffix == ".md"} - reached
            reached |= new
            todo += new
    assert set(PAGES) <= reached


def test_the_command_line_reference_is_up_to_date() -> None:
    assert docs_cli.PAGE.read_text(encoding="utf-8") == docs_cli.render(), "run: make reference"


def test_the_python_reference_is_up_to_date() -> None:
    from e2e import docs_api  # brings Prefect, a second that those who run the pages don't need

    assert docs_api.PAGE.read_text(encoding="utf-8") == docs_api.render(), "run: make reference"


def test_the_table_of_exit_codes_is_complete() -> None:
    listed = {int(code): name for code, name in _EXIT_ROW.findall(read("docs/reference/errors.md"))}
    assert listed == {**{int(code): code.name for code in ExitCode}, INTERNAL: "INTERNAL"}


def test_the_errors_reference_is_up_to_date() -> None:
    from e2e import docs_api

    text = read("docs/reference/errors.md")
    assert text == docs_api.render_errors(text), "run: make reference"


def test_the_settings_reference_is_up_to_date_and_has_every_key() -> None:
    text = docs_settings.PAGE.read_text(encoding="utf-8")
    assert text == docs_settings.render(text), "run: make reference"
    listed = re.findall(r"^\| `([a-z0-9_]+(?:\.[a-z0-9_*]+)+)` \|", text, re.MULTILINE)
    known = [key for key, _, _ in docs_settings.setting_keys()]
    assert sorted(listed) == sorted(known)
    assert docs_settings.FLAGS.keys() <= set(known)
    commands = read("docs/reference/cli.md")
    assert all(f"`{flag.rpartition(' ')[2]}" in commands for flag in docs_settings.FLAGS.values())


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("README", "docs/"))])
def test_settings_in_the_pages_are_valid(page: str) -> None:
    for block in docs_pages.blocks(page):
        if block.language == "toml":
            content = tomllib.loads(block.text)
            if "project" not in content:
                Settings.model_validate(content)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("README", "docs/"))])
def test_contracts_in_the_pages_are_valid(page: str) -> None:
    for block in docs_pages.blocks(page):
        if block.file is not None and block.file.startswith(f"{FOLDER}/"):
            assert f"{FOLDER}/{parse_contract(block.text, name=block.place).table}.yaml" == block.file


def test_the_checks_reference_and_exports_are_up_to_date() -> None:
    assert docs_checks.PAGE.read_text(encoding="utf-8") == docs_checks.render(), "run: make reference"
    assert docs_checks.EXPORTS.read_text(encoding="utf-8") == docs_checks.exports(), "likewise"
    assert docs_checks.SCHEMA.read_text(encoding="utf-8") == docs_checks.schema(), "likewise"


def test_the_page_of_other_tools_is_up_to_date() -> None:
    assert docs_neighbours.PAGE.read_text(encoding="utf-8") == docs_neighbours.render(), "run: make reference"


def test_the_checks_reference_has_every_field_of_a_result() -> None:
    text = read("docs/reference/checks.md").partition("## Results")[2]
    assert all(f"| `{field}` |" in text for field in CheckResult.model_fields if field != "detail")


def test_the_example_of_an_ingest_result_fits_its_schema() -> None:
    schema = json.loads(files("lakegate").joinpath("schemas/ingest-result.schema.json").read_text(encoding="utf-8"))
    examples = [b for b in docs_pages.blocks("docs/reference/ingest-result.md") if b.language == "json"]
    assert len(examples) == 1
    Draft202012Validator(schema).validate(json.loads(examples[0].text))
    text = read("docs/reference/ingest-result.md")
    assert all(f"| `{field}` |" in text for field in schema["properties"] if field != "rows")


def test_the_changelog_has_this_version() -> None:
    dated = rf"^## \[{re.escape(__version__)}\] - (\d{{4}}-\d\d-\d\d|unreleased)$"
    assert re.search(dated, read("CHANGELOG.md"), re.MULTILINE)


def test_every_package_is_on_the_page_of_the_architecture() -> None:
    layers = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    text = read("ARCHITECTURE.md")
    for package in (name.strip().strip("()") for layer in layers for name in layer.split("|")):
        assert re.search(rf"^\| `{package}(?:/|\.py)` \|", text, re.MULTILINE), package
    for name, function in re.findall(r"`([a-z_/]+\.py)` `(?:[A-Z]\w+\.)?(\w+)`", text):
        path = next(iter((ROOT / "src" / "lakegate").glob(name)), None)
        assert path is not None, name
        assert f"def {function}(" in path.read_text(encoding="utf-8"), (name, function)
