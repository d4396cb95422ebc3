"""Interrupted, killed, cut off: what a command tells whose run or servers something happened to.

That main has all of a batch or nothing, whatever happens where, is proven by :mod:`proofs.crash_matrix`; of its cases
those that kill servers run here, where a stack is at hand that may be killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from lakegate.config import LocalSettings
from lakegate.local.stack import LocalStack
from lakegate.progress import SilentNarrator
from lakegate.wap.failpoints import POINTS
from proofs import crash_matrix
from support.e2e_support import Cli, let_go, press_ctrl_c, write, write_trips
from support.loopback import loopback_client
from support.served_lake import serving
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

PUBLISHED_AT = ("after-publish", "after-branch-delete")
SETTINGS = '[local]\nspark_memory = "1g"\nnessie_memory = "384m"\n'
SEED = 4
ROWS = 20
BIG_ROWS = 1_500_000


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A project with servers of its own, as these tests kill them."""
    home = tmp_path_factory.mktemp("faulty-home")
    (home / "lakegate.toml").write_text(SETTINGS, encoding="utf-8")
    yield Cli(home)
    LocalStack(home, LocalSettings(), SilentNarrator()).down()


@pytest.fixture
def table(namespace: str) -> str:
    return f"{namespace}.trips"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes seconds to write: nothing in it compresses."""
    random = np.random.default_rng(7)
    columns = {"id": pa.array(np.arange(BIG_ROWS))}
    columns |= {f"c{index}": pa.array(random.random(BIG_ROWS)) for index in range(8)}
    return write(tmp_path_factory.mktemp("big") / "big.parquet", pa.table(columns))


def server(cli: Cli, name: str) -> int:
    """Return the process id of a server that runs."""
    services = {one["name"]: one for one in cli.json("up")["services"]}
    assert services[name]["state"] == "running"
    return int(services[name]["pid"])


def kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=120)


def wait_for_data(cli: Cli, table: str, command: subprocess.Popen[str]) -> None:
    """Wait until ``command`` is in the middle of writing data files of ``table``."""
    folder = cli.home / ".lakegate" / "warehouse" / table.replace(".", "/")
    wait_until(lambda: any(folder.parent.glob(f"{folder.name}_*/data/*.parquet")), what="a data file", process=command)


def require_works(cli: Cli, table: str, source: Path) -> None:
    """The next command works, whatever has to be started again for it."""
    done = cli.run("ingest", table, source, "-c", "unique(id)")
    assert done.returncode == 0, done.stderr
    assert cli.count(table) == ROWS


@pytest.mark.parametrize("point", POINTS)
def test_interrupted_at(cli: Cli, table: str, tmp_path: Path, point: str) -> None:
    source = write_trips(tmp_path / "a.parquet", ROWS)
    before = cli.branches()
    done = cli.run("ingest", table, source, "-c", "not_null(id)", fault=f"{point}:interrupt")
    after = cli.branches()

    assert (done.returncode, done.stdout) == (130, "")
    assert "Interrupted." in done.stderr
    assert "Traceback" not in done.stderr
    assert set(after) == set(before)
    (run,) = cli.json("runs", "--table", table)
    if point in PUBLISHED_AT:
        assert "had been published already" in done.stderr
        assert f"lakegate runs {run['run_id']}" in done.stderr
        assert (run["status"], run["commit"]) == ("published", after["main"])
        assert cli.count(table) == ROWS
    else:
        assert "Nothing was published" in done.stderr
        assert "was removed" in done.stderr
        assert (run["status"], run["branch"]) == ("failed", None)
        assert after == before


def test_killed_after_its_audit_and_delivered_again(cli: Cli, table: str, tmp_path: Path) -> None:
    """The second delivery publishes the first one's run, and has nothing left to do."""
    source = write_trips(tmp_path / "a.parquet", ROWS)
    before = cli.branches()
    done = cli.run("ingest", table, source, "--branch", "killed/late", fault="before-commit:kill")
    assert done.returncode == -signal.SIGKILL
    assert cli.branches() == {**before, "killed/late": cli.branches()["killed/late"]}

    again = cli.json("ingest", table, source)
    (first,) = cli.json("runs", "--table", table, "--status", "published")
    assert (again["status"], first["commit"]) == ("skipped", cli.branches()["main"])
    assert [file["run_id"] for file in again["skipped_files"]] == [first["run_id"]]
    assert cli.count(table) == ROWS
    assert set(cli.branches()) == set(before)


def test_ctrl_c_in_the_middle_of_a_big_write(cli: Cli, table: str, big: Path, tmp_path: Path) -> None:
    server(cli, "spark")
    before = cli.branches()
    command = cli.start("ingest", table, big)
    wait_for_data(cli, table, command)
    out, err = press_ctrl_c(command)

    assert (command.returncode, out) == (130, "")
    assert "Nothing was published" in err
    assert "was removed" in err
    assert "Traceback" not in err
    assert cli.branches() == before
    require_works(cli, table, write_trips(tmp_path / "a.parquet", ROWS))


def test_spark_killed_while_one_writes_and_others_are_about_to_audit(
    cli: Cli, table: str, namespace: str, big: Path, tmp_path: Path
) -> None:
    """The audit that could not run is no verdict on the data; what file metrics answer needs no engine."""
    pid = server(cli, "spark")
    before = cli.branches()
    audited, proven, branch = f"{namespace}.audited", f"{namespace}.proven", "cut/spark"
    source, other = (write_trips(tmp_path / f"{name}.parquet", ROWS) for name in ("audited", "proven"))
    needs_spark = ("ingest", audited, source, "-c", "unique(id)")
    needs_none = ("ingest", proven, other, "-c", "not_null(id)", "-o", "json")
    with cli.stopped("after-stage", *needs_spark) as auditing, cli.stopped("after-stage", *needs_none) as publishing:
        writing = cli.begin("ingest", table, big, "--branch", branch)
        wait_for_data(cli, table, writing)
        kill(pid)
        out, err = writing.communicate(timeout=300)
        assert (writing.returncode, out) == (3, ""), err
        assert f"while writing {table} on branch {branch}" in err
        assert "hint:" in err
        assert "lakegate" in err
        assert "Traceback" not in err

        code, out, err = let_go(auditing)
        assert (code, out) == (3, ""), err
        assert "Lost the connection to Spark while auditing" in err
        assert "hint:" in err

        code, out, err = let_go(publishing)
        assert code == 0, err
        run = json.loads(out)
        assert run["status"] == "published"
    assert cli.branches() == {**before, "main": run["commit"]}
    assert cli.count(proven) == ROWS
    assert (cli.count(table), cli.count(audited)) == (None, None)
    require_works(cli, audited, source)
    require_works(cli, table, source)


def test_nessie_killed_while_one_writes_one_publishes_and_one_serves(
    cli: Cli, table: str, namespace: str, big: Path, tmp_path: Path
) -> None:
    served_table, late = f"{namespace}.served", f"{namespace}.late"
    source = write_trips(tmp_path / "a.parquet", ROWS)
    require_works(cli, served_table, source)
    pid = server(cli, "nessie")
    before = cli.branches()
    branches = ("cut/nessie", "gone/nessie")
    with (
        cli.stopped("before-publish", "ingest", late, source, "--branch", branches[1]) as publishing,
        serving(cli.home) as served,
        loopback_client() as client,
    ):
        url = f"{served.url}/v1/main/namespaces/{namespace}/tables/served"
        loaded = client.get(url)
        writing = cli.begin("ingest", table, big, "--branch", branches[0])
        wait_for_data(cli, table, writing)
        kill(pid)
        assert [client.get(one).status_code for one in (url, f"{served.url}/ready")] == [503, 503]
        out, err = writing.communicate(timeout=300)
        ended = [(writing.returncode, out, err), let_go(publishing)]
        server(cli, "nessie")  # lakegate up starts it again, elsewhere
        again = client.get(url)
    assert (again.status_code, again.json()) == (200, loaded.json())
    for branch, (code, out, err) in zip(branches, ended, strict=True):
        assert (code, out) == (3, ""), err
        assert f"lakegate discard {branch}" in err
        assert "hint:" in err
        assert "Traceback" not in err
    assert f"while writing {table} on branch {branches[0]}" in ended[0][2]
    assert set(cli.branches()) == {*before, *branches}

    assert cli.run("admin", "recover").returncode == 0
    assert cli.branches() == before
    require_works(cli, late, source)
    require_works(cli, table, source)


def test_crash_matrix_of_servers(cli: Cli, namespace: str) -> None:
    proof = crash_matrix.prove(cli.home, crash_matrix.some_server_cases(SEED), namespace=namespace)
    assert not proof.failures, proof.details


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system of ``size_bytes`` on ``folder``, or skip the test."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"may not mount a small file system here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_up_during_the_write(cli: Cli, table: str, namespace: str, big: Path, tmp_path: Path) -> None:
    before = cli.branches()
    with small_disk(cli.home / ".lakegate" / "warehouse" / namespace, 32 * 2**20):
        done = cli.run("ingest", table, big)
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        assert "The disk is full" in done.stderr
        assert table in done.stderr
        assert "Free some space" in done.stderr
        assert "Traceback" not in done.stderr
        assert cli.branches() == before
    require_works(cli, table, write_trips(tmp_path / "a.parquet", ROWS))
