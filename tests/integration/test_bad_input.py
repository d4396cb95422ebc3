"""Bad input: each is refused with a sentence that tells what to do, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakegate.errors import (
    AlreadyExistsError,
    CheckError,
    IdentifierError,
    InputError,
    LakegateError,
    NotFoundError,
    SchemaError,
    SourceError,
)
from lakegate.lake import Lake
from support.e2e_support import COLUMNS, Cli, standing, trips, unchanged, write, write_trips

pytestmark = pytest.mark.jvm

Make = Callable[[Path], Path | str | list[Path]]


@pytest.fixture(scope="session")
def table(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that stands on main, with :data:`COLUMNS`."""
    name = "bad_input.trips"
    assert lake.ingest(name, write_trips(tmp_path_factory.mktemp("good") / "a.parquet", 10)).status == "published"
    return name


def text_file(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def require_refusal(error: LakegateError, *words: str) -> None:
    assert error.exit_code == 2
    for word in words:
        assert word in error.message, error.message
    assert error.hint, error.message


BAD_FILES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "missing": (lambda folder: folder / "nope.parquet", ("nope.parquet' doesn't exist",)),
    "zero bytes": (text_file("zero.parquet", ""), ("zero.parquet' is empty (0 bytes)",)),
    "text": (text_file("text.parquet", "id,passengers\n1,2\n"), ("text.parquet' isn't a parquet file",)),
    "cut off": (
        lambda folder: text_file("cut.parquet", write_trips(folder / "a.parquet", 100).read_bytes()[:-100])(folder),
        ("cut.parquet' is cut off", "footer"),
    ),
    "ragged": (
        text_file("ragged.csv", "id,note\n1,a\n2,b,c\n3\n"),
        ("ragged.csv", "line 3 has 3 values", "line 4 has 1 value"),
    ),
    "unclosed quote": (text_file("quote.csv", 'id,note\n1,"a\n2,b\n'), ("quote.csv", "quotes", "line 2")),
    "wrong encoding": (
        text_file("latin.csv", "id,note\n1,Zürich\n".encode("latin-1")),
        ("latin.csv' isn't utf-8", "0xfc", "line 2"),
    ),
    "two schemas": (
        lambda folder: [
            write_trips(folder / "a.parquet", 5),
            write(folder / "b.parquet", trips(5).drop_columns(["note"]).append_column("tip", pa.array([1.0] * 5))),
        ],
        ("b.parquet' doesn't have the columns of", "a.parquet", "'note' (string) is missing", "'tip' (double) is add"),
    ),
    "two formats": (
        lambda folder: [write_trips(folder / "a.parquet", 5), text_file("b.csv", "id\n1\n")(folder)],
        ("mixes formats", "a.parquet", "b.csv"),
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_files_that_cannot_be_read(lake: Lake, table: str, tmp_path: Path, case: str) -> None:
    make, words = BAD_FILES[case]
    paths = make(tmp_path)
    with unchanged(lake), pytest.raises(InputError) as caught:
        lake.ingest(table, paths)
    assert isinstance(caught.value, SourceError | SchemaError)
    require_refusal(caught.value, *words)


@pytest.mark.parametrize("name", ["empty.parquet", "empty.csv"])
def test_files_without_rows_publish_nothing_and_say_so(lake: Lake, table: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix == ".csv":
        path.write_text(",".join(COLUMNS) + "\n")
    else:
        write_trips(path, 0)
    with unchanged(lake):
        run = lake.ingest(table, path, checks=["not_null(id)"])
        done = Cli(lake.home).run("ingest", table, path)

    assert (run.status, run.publication, run.branch_kept) == ("skipped", None, False)
    assert "holds no rows; nothing to publish" in (run.detail or "")
    assert done.returncode == 0
    assert "skipped" in done.stdout
    assert "holds no rows; nothing to publish" in done.stdout


BAD_CHECKS = {
    "not_null(pasengers)": ("there is no column 'pasengers'", "Did you mean 'passengers'?"),
    "sql('pasengers > 3')": ("there is no column 'pasengers'", "Did you mean 'passengers'?"),
    "in_range(note, 1, 5)": ("column 'note' is of type string", "column's type"),
    "matches(id, 'x')": ("column 'id' is of type long", "sql("),
    "matches(note, '(')": ("matches(note, pattern='(')", "group near index 1"),
    "notnull(id)": ("no check called 'notnull'", "Did you mean 'not_null'?"),
    "not_null(id": ("not_null(id can't be read", "not_null(column, …)"),
    "sql('passengers >')": ("isn't valid SQL", "sql('fare_amount < 0')"),
    "sql('1 = 1; DROP TABLE x')": ("sql", "sql("),
    "not_null(id, severity='fatal')": ("'fatal'", "warn"),
}


@pytest.mark.parametrize("check", BAD_CHECKS)
def test_checks_that_cannot_be_asked(lake: Lake, table: str, tmp_path: Path, check: str) -> None:
    message, hint = BAD_CHECKS[check]
    source = write_trips(tmp_path / "a.parquet", 5)
    with unchanged(lake), pytest.raises(CheckError) as caught:
        lake.ingest(table, source, checks=["not_null(id)", check])
    require_refusal(caught.value)
    told = f"{caught.value.message} {caught.value.hint} {caught.value.detail}"
    assert message in told
    assert hint in told


def test_a_check_that_breaks_on_the_data_is_the_checks_fault(lake: Lake, table: str, tmp_path: Path) -> None:
    source = write_trips(tmp_path / "a.parquet", 5)
    with unchanged(lake), pytest.raises(CheckError) as caught:
        lake.ingest(table, source, checks=["sql('CAST(note AS INT) > 3')"])
    require_refusal(caught.value, table, "CAST(note AS INT) > 3", "CAST_INVALID_INPUT")
    assert "cannot be cast" in str(caught.value.detail)


BAD_NAMES = ('ns."t"', "ns.a b", "ns.t@main", "ns.a;b", "ns.zürich", "ns..t", "", "t", "ns.a/b")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_table_can_have(lake: Lake, tmp_path: Path, name: str) -> None:
    source = write_trips(tmp_path / "a.parquet", 5)
    with unchanged(lake):
        for use in (lambda: lake.ingest(name, source), lambda: lake.table(name), lambda: lake.audit(name, branch="x")):
            with pytest.raises(IdentifierError) as caught:
                use()
            require_refusal(caught.value, f"'{name}' can't name a table")


def test_a_branch_that_exists_is_left_alone(lake: Lake, table: str, tmp_path: Path) -> None:
    source = write_trips(tmp_path / "a.parquet", 5)
    lake.branches.create("taken/by-someone")
    for branch in ("taken/by-someone", "main"):
        with unchanged(lake), pytest.raises(AlreadyExistsError) as caught:
            lake.ingest(table, source, branch=branch)
        require_refusal(caught.value, f"Branch '{branch}' exists already")
    lake.branches.delete("taken/by-someone")


@pytest.mark.parametrize("branch", ["a b", "x/", "ä", "0123456789abcdef", "HEAD"])
def test_names_that_no_branch_can_have(lake: Lake, table: str, tmp_path: Path, branch: str) -> None:
    source = write_trips(tmp_path / "a.parquet", 5)
    with unchanged(lake):
        for use in (lambda: lake.ingest(table, source, branch=branch), lambda: lake.branches.create(branch)):
            with pytest.raises(IdentifierError) as caught:
                use()
            require_refusal(caught.value, f"'{branch}' can't name a branch")


@pytest.mark.parametrize("ref", ["nope", "wap/nope", "a b?x=1#@", "deadbeefdeadbeefdeadbeef"])
def test_references_that_are_not_there(lake: Lake, table: str, ref: str) -> None:
    for use in (
        lambda: lake.query("SELECT 1", ref=ref),
        lambda: list(lake.log(ref)),
        lambda: lake.diff("main", ref),
        lambda: lake.diff(ref, "main"),
        lambda: lake.table(table, ref=ref),
        lambda: lake.tables(ref),
        lambda: lake.branches.create("never", source=ref),
        lambda: lake.branches.delete(ref),
        lambda: lake.audit(table, branch=ref),
        lambda: lake.publish(ref),
        lambda: lake.discard(ref),
    ):
        with unchanged(lake), pytest.raises(LakegateError) as caught:
            use()
        assert isinstance(caught.value, NotFoundError), caught.value
        require_refusal(caught.value, ref)


def test_main_is_neither_discarded_nor_deleted(lake: Lake) -> None:
    for use in (lambda: lake.discard("main"), lambda: lake.branches.delete("main"), lambda: lake.publish("main")):
        with unchanged(lake), pytest.raises(InputError) as caught:
            use()
        require_refusal(caught.value, "'main'")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ingest", "bad_input.trips", "nope.parquet"], "nope.parquet"),
        (["ingest", "bad input", "x.csv"], "bad input"),
        (["query", "SELECT 1", "--ref", "nope"], "nope"),
        (["query", ""], "empty"),
        (["runs", "nope"], "nope"),
        (["table", "show", "bad_input.nope"], "bad_input.nope"),
        (["branch", "create", "a b"], "a b"),
        (["generate", "x", "--null-column", "pasenger_count"], "passenger_count"),
        (["ingets"], "ingest"),
    ],
)
def test_the_command_line_ends_with_2_and_one_sentence(
    lake: Lake, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = standing(lake)
    done = Cli(lake.home).run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert standing(lake) == before
