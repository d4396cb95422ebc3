"""The proofs on the real stack, in their short forms; ``make prove`` runs the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakegate.local.state import StackState
from proofs import contention, crash_matrix, exactness, quarantine, schema_changes, storm

pytestmark = pytest.mark.jvm

SEED = 4


def test_crash_matrix_of_the_client(home: Path, stack: StackState, namespace: str) -> None:
    """The cases that kill servers are in ``test_faults_cli.py``, whose stack may be killed."""
    proof = crash_matrix.prove(home, crash_matrix.some_client_cases(SEED), namespace=namespace)
    assert not proof.failures, proof.details


def test_contention(home: Path, stack: StackState, namespace: str) -> None:
    proof = contention.prove(home, processes=6, batches=3, seed=SEED, namespace=namespace)
    assert not proof.failures, proof.details


def test_duplicate_storm(home: Path, stack: StackState, namespace: str) -> None:
    proof = storm.prove(home, storm.SHORT, seed=SEED, namespace=namespace)
    assert not proof.failures, proof.details


def test_exactness(home: Path, stack: StackState, namespace: str) -> None:
    proof = exactness.prove(home, exactness.SHORT, seed=SEED, namespace=namespace)
    assert not proof.failures, proof.failures


def test_quarantined_rows_add_up(home: Path, stack: StackState, namespace: str) -> None:
    proof = quarantine.prove(home, quarantine.SHORT, SEED, namespace=namespace)
    assert not proof.failures, "\n".join(proof.failures)


def test_schema_changes(home: Path, stack: StackState, namespace: str) -> None:
    proof = schema_changes.prove(home, 4, SEED, namespace=namespace, within_s=40)
    assert not proof.failures, "\n".join(proof.failures)
    assert "published" in proof.details
