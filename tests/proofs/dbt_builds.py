"""An unchanged dbt project, built through the gate by dbt-spark and by dbt-duckdb, each in an environment of its own.

Both build a table, an incremental model by merge and an aggregate from a published table, and again after that and a
model's columns have changed: each build is one commit, and both engines' rows must be the same. A test of dbt that
fails and a model that is a view fail the build, and nothing is published. A job of classic Spark, which knows no gate,
writes through it, too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lakegate.lake import Lake, connect
from proofs.result import ProofResult
from support.e2e_support import Cli, write_trips

_CORE, _DUCKDB = "dbt-core==1.11.16", "1.5.5"
_EXTENSIONS = ("avro", "httpfs", "iceberg")
_FACTS = """
import duckdb, sysconfig
print(sysconfig.get_path("purelib"), duckdb.sql("PRAGMA platform").fetchone()[0])
"""
_PACKAGES = {
    "duckdb": (
        *(_CORE, "dbt-duckdb==1.11.1", f"duckdb=={_DUCKDB}"),
        *(f"duckdb-extension-{name}=={_DUCKDB}" for name in _EXTENSIONS),
    ),
    "spark": (_CORE, "dbt-spark[session]==1.11.0", "pyspark==4.1.4"),
}
_PROJECT = {
    "dbt_project.yml": """\
name: shop
version: "1.0"
profile: shop
flags: {send_anonymous_usage_stats: false}
models: {shop: {+materialized: table}}
""",
    "profiles.yml": """\
shop:
  target: duckdb
  outputs:
    duckdb:
      type: duckdb
      schema: by_duckdb
      threads: 2
      config_options: {extension_directory: EXTENSIONS}
    spark: {type: spark, method: thrift, host: spark.example.com, schema: by_spark, threads: 2}
""",
    "models/stg_trips.sql": "select id, passengers, note from {{ source('raw', 'trips') }} where passengers > 0",
    "models/fct_trips.sql": """\
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
select id, passengers from {{ ref('stg_trips') }}
{% if is_incremental() %} where id >= 10 {% endif %}
""",
    "models/per_passengers.sql": "select passengers, count(*) as trips from {{ ref('stg_trips') }} group by passengers",
    "models/schema.yml": """\
sources: [{name: raw, schema: dbt_raw, tables: [{name: trips}]}]
models:
  - {name: stg_trips, columns: [{name: id, data_tests: [not_null, unique]}]}
  - {name: per_passengers, columns: [{name: passengers, data_tests: [unique]}]}
""",
}
_CHANGED = {
    "models/per_passengers.sql": """\
select passengers, count(*) as trips, min(id) as first_id from {{ ref('stg_trips') }} group by passengers
""",
}
_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE NAMESPACE classic")
spark.table("dbt_raw.trips").writeTo("classic.trips").create()
"""
_FAILING_TEST = {"tests/few_trips.sql": "select * from {{ ref('stg_trips') }}"}
_VIEW = {"models/shown.sql": "{{ config(materialized='view') }} select 1 as id"}
_TABLES = ("stg_trips", "fct_trips", "per_passengers")


def prove(home: Path, *, tell: Callable[[str], object] = lambda _: None) -> ProofResult:
    """Build the project on the stack in ``home`` with both adapters."""
    folder = home / "dbt"
    failures: list[str] = []
    with connect(home) as lake:
        lake.ingest("dbt_raw.trips", write_trips(folder / "first.parquet", 20))
        programs = {name: _installed(folder / name, packages, tell) for name, packages in _PACKAGES.items()}
        project = _project(folder / "project", _extensions(folder, programs["duckdb"]))
        for build in ("first", "second"):
            for name, program in programs.items():
                tell(f"The {build} build by dbt-{name}")
                failures += [f"{name}, {build} build: {one}" for one in _published(lake, home, project, program, name)]
            if not failures:
                failures += _differences(lake, build)
            lake.ingest("dbt_raw.trips", write_trips(folder / f"after-{build}.parquet", 10, start=20))
            _write(project, _CHANGED)
        tell("A job of classic Spark")
        failures += _classic(lake, home, programs["spark"])
        for name, program in programs.items():
            tell(f"Builds by dbt-{name} that fail")
            failures += [f"{name}: {one}" for one in _refused(lake, home, project, program, name)]
    return ProofResult(
        "dbt", 4 * len(programs) + 1, failures, ", ".join(f"{' '.join(one)}" for one in _PACKAGES.values())
    )


def _installed(folder: Path, packages: tuple[str, ...], tell: Callable[[str], object]) -> Path:
    """Install packages into an environment of their own; return its folder of programs."""
    tell(f"Installing {', '.join(packages)}")
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    into = ("--quiet", "--python", str(folder / "bin" / "python"))
    subprocess.run([uv, "pip", "install", *into, *packages], check=True)
    return folder / "bin"


def _extensions(folder: Path, programs: Path) -> Path:
    """Return a folder with DuckDB's extensions, as if it had installed them."""
    place = folder / "extensions"
    said = subprocess.run([programs / "python", "-c", _FACTS], check=True, capture_output=True, text=True).stdout
    packages, platform = said.split()
    own = place / f"v{_DUCKDB}" / platform
    own.mkdir(parents=True)
    for name in _EXTENSIONS:
        file = f"{name}.duckdb_extension"
        shutil.copyfile(Path(packages) / f"duckdb_extension_{name}/extensions/v{_DUCKDB}/{file}", own / file)
    return place


def _project(folder: Path, extensions: Path) -> Path:
    _write(folder, {name: text.replace("EXTENSIONS", str(extensions)) for name, text in _PROJECT.items()})
    return folder


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _build(home: Path, project: Path, programs: Path, target: str) -> subprocess.CompletedProcess[str]:
    variables = {"DBT_PROJECT_DIR": str(project), "DBT_PROFILES_DIR": str(project)}
    command = (str(programs / "dbt"), "--quiet", "build", "--target", target)
    return Cli(home, variables).run("gate", "run", "--dbt", "--name", "shop", "--", *command)


def _published(lake: Lake, home: Path, project: Path, programs: Path, target: str) -> Iterator[str]:
    before = _head(lake)
    done = _build(home, project, programs, target)
    if done.returncode:
        yield f"exit code {done.returncode}: {done.stdout} {done.stderr}"
        return
    run = lake.runs(kind="gate", limit=1)[0]
    if set(run.tables) != {f"by_{target}.{table}" for table in _TABLES} or run.detail != "dbt: 3 models, 3 tests.":
        yield f"run {run.run_id}: {run.tables}, {run.detail}"
    if [commit.hash for commit in lake.log(limit=2)][1] != before:
        yield "more than one commit"


def _classic(lake: Lake, home: Path, programs: Path) -> Iterator[str]:
    """Run a job that knows no gate, in a Spark of its own."""
    done = Cli(home).run("gate", "run", "--", str(programs / "python"), "-c", _JOB)
    if done.returncode:
        yield f"classic Spark: exit code {done.returncode}: {done.stdout} {done.stderr}"
    elif _rows(lake, "classic.trips") != _rows(lake, "dbt_raw.trips"):
        yield f"classic Spark: {_rows(lake, 'classic.trips')}"


def _differences(lake: Lake, build: str) -> Iterator[str]:
    for table in _TABLES:
        by_duckdb, by_spark = (_rows(lake, f"by_{name}.{table}") for name in _PACKAGES)
        if by_duckdb != by_spark:
            yield f"{build} build, {table}: {by_duckdb} by DuckDB, {by_spark} by Spark"


def _refused(lake: Lake, home: Path, project: Path, programs: Path, target: str) -> Iterator[str]:
    for texts, said in ((_FAILING_TEST, "test few_trips"), (_VIEW, "Views can't be published")):
        before = _head(lake)
        _write(project, texts)
        done = _build(home, project, programs, target)
        if done.returncode != 1 or said not in done.stderr:
            yield f"exit code {done.returncode} instead of 1, without '{said}': {done.stderr}"
        if _head(lake) != before:
            yield f"published although: {said}"
        for name in texts:
            (project / name).unlink()


def _head(lake: Lake) -> str:
    return next(iter(lake.log(limit=1))).hash


def _rows(lake: Lake, table: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in lake.query(f"SELECT * FROM {table}").to_arrow().to_pylist())
