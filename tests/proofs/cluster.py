"""A Spark cluster of several hosts: everything once, and what lakegate does when a part of it fails.

The cluster is that of ``examples/cluster``: each server and client in a network namespace, with files of its own.
Whatever fails, and whenever: a file's rows are published once, by the run or by its repetition, and nothing half-done
is left, no branch and no finding of ``verify``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from e2e.docs_pages import blocks
from proofs.result import ProofResult

_TOP = Path(__file__).resolve().parents[2]
_ROWS = 4_000_000
_CUT_S = 20
_JOB_S = 600
_NOT_ALLOWED = 77
_PAGE = "docs/how-to/use-your-own-spark-and-nessie.md"
_CLOCK = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += atol(getenv("CLOCK_FAST_S"));
    return failed;
}
"""
Fault = Callable[["Cluster"], None]


class Cluster:
    """A cluster that is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._script = [str(_TOP / "examples" / "cluster" / "cluster"), f"--name={name}"]

    def do(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the cluster's script."""
        return subprocess.run([*self._script, *words], capture_output=True, text=True, check=False, timeout=_JOB_S)

    def require(self, *words: str) -> None:
        """Run one that must succeed."""
        done = self.do(*words)
        assert done.returncode == 0, done.stderr

    def begin(self, host: str, *words: str, clock_s: int = 0) -> subprocess.Popen[str]:
        """Start a job of :mod:`proofs.cluster_client` on a host, with a clock that's so many seconds fast."""
        wrong = [f"LD_PRELOAD={_clock()}", f"CLOCK_FAST_S={clock_s}"] if clock_s else []
        inside = [
            "timeout",
            str(_JOB_S),
            "env",
            *wrong,
            f"PYTHONPATH={_TOP / 'tests'}",
            "python",
            "-m",
            "proofs.cluster_client",
            *words,
        ]
        return subprocess.Popen([*self._script, "exec", host, *inside], stdout=subprocess.PIPE, text=True)

    def job(self, host: str, *words: str) -> dict[str, Any]:
        """Run a job to its end, and return its last line."""
        return _ended(self.begin(host, *words))[-1]


@dataclass(frozen=True)
class Trial:
    """A file is ingested, and something fails meanwhile.

    Attributes:
        name: What fails, for the report.
        begins: The step in which it does.
        delay_s: How long into the step.
        strike: What to do then.
        heal: What to do before the same file is ingested again.
    """

    name: str
    begins: str
    strike: Fault
    heal: Fault
    delay_s: float = 2.0
    clock_s: int = 0


def _kill(host: str) -> Fault:
    return lambda cluster: cluster.require("kill", host)


def _start(host: str) -> Fault:
    return lambda cluster: cluster.require("start", host)


def _nothing(_: Cluster) -> None:
    pass


def _cut(one: str, other: str) -> Fault:
    def cut(cluster: Cluster) -> None:
        cluster.require("cut", one, other)
        time.sleep(_CUT_S)
        cluster.require("mend", one, other)

    return cut


TRIALS = (
    Trial("a worker is killed while it writes", "write", _kill("worker-2"), _start("worker-2"), delay_s=4),
    Trial("a worker is killed while it audits", "audit", _kill("worker-1"), _start("worker-1"), delay_s=0.3),
    Trial("Spark's driver is killed while it writes", "write", _kill("spark"), _start("spark"), delay_s=4),
    Trial("Spark's driver is killed while it audits", "audit", _kill("spark"), _start("spark"), delay_s=0.3),
    Trial("a worker can't reach the store", "write", _cut("worker-1", "store"), _nothing, delay_s=3),
    Trial("a client can't reach Spark", "write", _cut("client-1", "spark"), _nothing, delay_s=3),
    Trial("a client can't reach the catalog", "write", _cut("client-1", "nessie"), _nothing, delay_s=3),
    Trial("a client can't reach the journal", "write", _cut("client-1", "journal"), _nothing, delay_s=3),
    Trial("a client's clock is 10 minutes slow", "write", _nothing, _nothing, clock_s=-600),
    Trial("a client's clock is 10 minutes fast", "write", _nothing, _nothing, clock_s=600),
    Trial("a client's clock is 20 minutes fast", "write", _nothing, _nothing, clock_s=1200),
)


def prove(*, tell: Callable[[str], None], trials: tuple[Trial, ...] = TRIALS) -> ProofResult:
    """Run everything on a cluster of its own, or say why this machine can't have one."""
    with cluster_up(f"lakegate-proof-{os.getpid()}") as cluster:
        if isinstance(cluster, str):
            return ProofResult("cluster", 0, details=f"not run: {cluster}")
        failures = [
            *_page(cluster),
            *_everything(cluster),
            *_two_clients(cluster),
            *_through_the_gate(cluster),
        ]
        lines = []
        for number, trial in enumerate(trials):
            tell(trial.name)
            failed, line = run_trial(cluster, trial, f"t{number}")
            failures += failed
            lines.append(line)
            tell(line)
        return ProofResult("cluster", 4 + len(trials), failures, "\n".join(lines))


@contextmanager
def cluster_up(name: str) -> Iterator[Cluster | str]:
    """Start a cluster, and stop it at the body's end; yield why not if the machine doesn't allow one."""
    cluster = Cluster(name)
    up = cluster.do("up")
    if up.returncode == _NOT_ALLOWED:
        yield up.stderr.strip()
        return
    assert up.returncode == 0, up.stderr
    try:
        yield cluster
    finally:
        cluster.do("down")


def run_trial(cluster: Cluster, trial: Trial, name: str) -> tuple[list[str], str]:
    """Ingest a file, disturb it, ingest it again, and return what is wrong afterwards, and what was said."""
    table, path, run = f"faults.{name}", f"faults/{name}.parquet", f"run-{name}"
    cluster.job("client-2", "make", path, "0", str(_ROWS))
    began = cluster.begin("client-1", "ingest", table, f"s3://landing/{path}", run, clock_s=trial.clock_s)
    told = []
    assert began.stdout is not None
    for line in began.stdout:
        told.append(json.loads(line) if line.startswith("{") else {})
        if told[-1].get("begins") == trial.begins:
            time.sleep(trial.delay_s)
            trial.strike(cluster)
            break
    told += _ended(began)
    trial.heal(cluster)
    again = cluster.job("client-1", "ingest", table, f"s3://landing/{path}", run)
    after = cluster.job("client-2", "count", table)
    failures = []
    if (after["n"], after["ids"]) != (_ROWS, _ROWS):
        failures.append(f"{trial.name}: {after['n']:,} rows instead of {_ROWS:,}: {told[-1]}, then {again}")
    if after["branches"] or after["findings"]:
        failures.append(f"{trial.name}: left {after['branches']}, {after['findings']}")
    return failures, f"{trial.name}: {told}, then {again}"


def _page(cluster: Cluster) -> Iterator[str]:
    """Type the commands of the page about one's own servers, but for those that start and stop the cluster."""
    for block in blocks(_PAGE):
        for command in block.commands if block.skipped == "needs root" else ():
            script, _, rest = command.partition(" ")
            if rest not in ("up", "down"):
                line = f"{script} --name={cluster.name} {rest}"
                done = subprocess.run(["/bin/sh", "-c", line], cwd=_TOP, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    yield f"{block.place}: {command}: {done.stderr}"


def _everything(cluster: Cluster) -> Iterator[str]:
    for name, start, rows in (("a.parquet", 0, 3000), ("b.csv", 3000, 3000), ("c.parquet", 6000, 3000)):
        cluster.job("client-1", "make", f"all/{name}", str(start), str(rows))
    cluster.job("client-1", "make", "all/d.parquet", "2000", "2000")
    found = cluster.job("client-1", "everything", "once")
    counts = {"trips": 6000, "good": 2997, "local": 3000, "zones": 265}
    if (found["counts"], found["set_aside"], found["before"]) != (counts, 3, 266):
        yield f"everything: {found}"
    if not found["path"].startswith("QueryError"):
        yield f"a local path: {found['path']}"
    flow = cluster.job("client-3", "flow", "once.trips", "s3://landing/all/e.parquet")
    if flow != {"status": "published", "rows": 100}:
        yield f"a flow: {flow}"


def _two_clients(cluster: Cluster) -> Iterator[str]:
    started = []
    for host, start in (("client-1", 0), ("client-2", 5000)):
        cluster.job(host, "make", f"two/{host}.parquet", str(start), "5000")
        started.append(cluster.begin(host, "ingest", "two.trips", f"s3://landing/two/{host}.parquet", f"two-{host}"))
    told = [_ended(process)[-1] for process in started]
    after = cluster.job("client-3", "count", "two.trips")
    if (after["n"], after["ids"], after["branches"]) != (10_000, 10_000, []):
        yield f"two clients: {told}, {after}"


def _through_the_gate(cluster: Cluster) -> Iterator[str]:
    opened = cluster.do(
        "exec", "client-1", "lakegate", "gate", "open", "--name", "door", "--branch", "wap/door", "-o", "json"
    )
    if opened.returncode != 0:
        yield f"gate open: {opened.stderr}"
        return
    writing = cluster.begin("client-3", "write-gate", json.loads(opened.stdout)["token"], "4")
    assert writing.stdout is not None
    for line in writing.stdout:
        if "begins" in json.loads(line):
            break
    _cut("gate", "nessie")(cluster)
    appended = [line for line in _ended(writing) if "appended" in line]
    sealed = cluster.do("exec", "client-1", "lakegate", "gate", "seal", "wap/door")
    after = cluster.job("client-2", "count", "door.rows")
    # An append without an answer may have been done: PyIceberg says so, and never that one was done that wasn't.
    if sealed.returncode != 0 or not 100 * len(appended) <= after["n"] <= 400:
        yield f"the gate: {appended}, {sealed.stderr}, {after}"


@cache
def _clock() -> str:
    """Return a library with which a process's clock is wrong, and no other's."""
    library = Path(tempfile.mkdtemp(prefix="lakegate-clock-")) / "clock.so"
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(compiler, input=_CLOCK, text=True, check=True)
    return str(library)


def _ended(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout is not None
    lines = [json.loads(line) for line in process.stdout if line.startswith("{")]  # Prefect talks, too
    return lines or [{"error": f"no answer, exit code {process.wait()}"}]


if __name__ == "__main__":
    sys.stdout.write(f"{run_trial(Cluster(sys.argv[1]), TRIALS[int(sys.argv[2])], sys.argv[3])}\n")
