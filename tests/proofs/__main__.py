"""``python -m proofs [--seed N] [--only PROOF] [--short]``: the proofs, and one table of what came of them."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lakegate.config import LocalSettings
from lakegate.lake import connect
from lakegate.local.stack import LocalStack
from lakegate.local.state import StackFolder
from lakegate.progress import SilentNarrator
from proofs import (
    cluster,
    compaction,
    contention,
    crash_matrix,
    dbos_matrix,
    dbt_builds,
    door,
    exactness,
    histories,
    neighbours,
    quarantine,
    schema_changes,
    state_machine,
    storm,
    target_contracts,
    targets,
    trino_reads,
    trino_writes,
)
from proofs.result import ProofResult

_SETTINGS = '[local]\nspark_memory = "2g"\nnessie_memory = "512m"\n'

Proof = Callable[[Path, int], ProofResult]


def main() -> int:
    """Run the proofs on a stack of their own; return 1 when one failed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the same seed gives the same cases; by default a new one")
    parser.add_argument("--only", choices=sorted(_LONG), help="run only this one")
    parser.add_argument("--short", action="store_true", help="run the short forms, as the tests do")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    _tell(f"Seed: {seed}")
    proofs = _SHORT if arguments.short else _LONG
    if arguments.only and arguments.only not in proofs:
        parser.error(f"{arguments.only} has no short form")
    chosen = {arguments.only: proofs[arguments.only]} if arguments.only else proofs
    with tempfile.TemporaryDirectory(prefix="lakegate-proofs-") as folder:
        home = Path(folder)
        (home / "lakegate.toml").write_text(_SETTINGS, encoding="utf-8")
        try:
            results = [_run(name, proof, home, seed) for name, proof in chosen.items()]
        finally:
            LocalStack(home, LocalSettings(), SilentNarrator()).down()
    sys.stdout.write(table(results, seed) + "\n")
    return int(any(result.failures for result in results))


def table(results: Sequence[ProofResult], seed: int) -> str:
    """Return what the proofs came to: one line each, their details, and every failure."""
    lines = [f"{'proof':<20} {'cases':>8} {'failures':>9}   (seed {seed})"]
    lines += [f"{result.proof:<20} {result.cases:>8,} {len(result.failures):>9,}" for result in results]
    for result in results:
        lines += ["", f"{result.proof}:", result.details] if result.details else []
    for result in results:
        lines += [f"\nFAILED {result.proof}: {failure}" for failure in result.failures]
    return "\n".join(lines)


def _run(name: str, proof: Proof, home: Path, seed: int) -> ProofResult:
    _tell(f"Proving: {name}")
    result = proof(home, seed)
    return replace(result, failures=[*result.failures, *_unsound(home)])


def _unsound(home: Path) -> Iterator[str]:
    """Yield what ``lakegate admin verify`` finds in the proofs' lake, but for what their outsiders committed."""
    if StackFolder(home).read() is None:
        return
    with connect(home) as lake:
        for finding in lake.maintenance.verify(deep=True).findings:
            if finding.kind != "foreign-commit":
                yield f"verify: {finding.message}"


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")


def _some_crashes(home: Path, seed: int) -> ProofResult:
    cases = [*crash_matrix.some_client_cases(seed), *crash_matrix.some_server_cases(seed)]
    return crash_matrix.prove(home, cases, tell=_tell)


_LONG: Mapping[str, Proof] = {
    "state-machine": lambda _, seed: state_machine.prove(10_000, seed),
    "crash-matrix": lambda home, _: crash_matrix.prove(home, crash_matrix.all_cases(), tell=_tell),
    "dbos": lambda home, _: dbos_matrix.prove(home, dbos_matrix.all_cases(), times=dbos_matrix.TIMES, tell=_tell),
    "contention": lambda home, seed: contention.prove(home, 16, 10, seed=seed),
    "storm": lambda home, seed: storm.prove(home, storm.LONG, seed=seed),
    "compaction": lambda home, seed: compaction.prove(home, seed=seed),
    "targets": lambda home, seed: targets.prove(home, 40, seed),
    "target-contracts": lambda home, _: target_contracts.prove(home),
    "histories": lambda home, seed: histories.prove(home, seed=seed, keep=Path(tempfile.gettempdir())),
    "hot-table": lambda home, seed: histories.prove(
        home, histories.HOT, seed=seed, namespace="hot", keep=Path(tempfile.gettempdir())
    ),
    "door": lambda _, seed: door.prove(door.LONG_S, seed, tell=_tell),
    "exactness": lambda home, seed: exactness.prove(home, exactness.LONG, seed=seed, tell=_tell),
    "neighbours": lambda home, _: neighbours.prove(home),
    "quarantine-crashes": lambda home, seed: quarantine.prove(
        home, quarantine.every_kill(), seed, namespace="killed", tell=_tell
    ),
    "quarantine": lambda home, seed: quarantine.prove(home, quarantine.some(250, seed), seed, tell=_tell),
    "quarantine-anytime": lambda home, seed: quarantine.prove(
        home, quarantine.killed_anytime(300, seed), seed, namespace="anytime", within_s=400, tell=_tell
    ),
    "schema-changes": lambda home, seed: schema_changes.prove(home, 150, seed, tell=_tell),
    "dbt": lambda home, _: dbt_builds.prove(home, tell=_tell),
    "trino": lambda home, _: trino_reads.prove(home, tell=_tell),
    "trino-writes": lambda home, _: trino_writes.prove(home, tell=_tell),
    "cluster": lambda *_: cluster.prove(tell=_tell),
}
_SHORT: Mapping[str, Proof] = {
    "state-machine": lambda _, seed: state_machine.prove(300, seed),
    "crash-matrix": _some_crashes,
    "dbos": lambda home, _: dbos_matrix.prove(home, dbos_matrix.some_cases(), tell=_tell),
    "contention": lambda home, seed: contention.prove(home, 6, 3, seed=seed),
    "storm": lambda home, seed: storm.prove(home, storm.SHORT, seed=seed),
    "compaction": lambda home, seed: compaction.prove(home, compaction.SHORT, seed=seed),
    "histories": lambda home, seed: histories.prove(home, histories.SHORT, seed=seed),
    "door": lambda _, seed: door.prove(door.SHORT_S, seed, tell=_tell),
    "exactness": lambda home, seed: exactness.prove(home, exactness.SHORT, seed=seed, tell=_tell),
    "quarantine": lambda home, seed: quarantine.prove(home, quarantine.SHORT, seed, tell=_tell),
    "quarantine-anytime": lambda home, seed: quarantine.prove(
        home, quarantine.killed_anytime(300, seed), seed, namespace="anytime", within_s=40, tell=_tell
    ),
    "schema-changes": lambda home, seed: schema_changes.prove(home, 4, seed, tell=_tell),
}


if __name__ == "__main__":
    sys.exit(main())
