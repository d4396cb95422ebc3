"""The short form of the state machine proof; ``make prove`` runs the long one."""

from __future__ import annotations

import pytest

from proofs.operations import (
    At,
    Break,
    Collect,
    Crash,
    Do,
    History,
    Ingest,
    LoseJournal,
    Outsider,
    Recover,
    Revert,
    Stall,
    Step,
    Transact,
)
from proofs.state_machine import in_memory, play, prove

HISTORIES = 40
SEED = 20261121
FILE, OTHER_FILE = ((0, 0),), ((1, 0),)
PLAIN = Ingest("w.a", FILE, checks="none")

FOUND: dict[str, History] = {
    "a sleeper does not write over how its run ended": (
        Ingest(
            "w.a",
            FILE,
            checks="none",
            at=(At("journal:save", Stall((Recover(), Ingest("w.b", FILE, checks="none"))), nth=3, after=True),),
        ),
    ),
    "a sleeper does not publish again what was reverted": (
        Ingest("w.a", FILE, checks="none", at=(At("before-publish", Stall((PLAIN, Revert(0)))),)),
    ),
    "a branch that couldn't be dropped is known": (
        Ingest("w.a", FILE, checks="none", at=(At("delete_ref", Break("away")),)),
    ),
    "recovery leaves a reverted run reverted": (
        Ingest("w.a", FILE, checks="none", at=(At("after-publish", Crash()),)),
        Revert(0),
    ),
    "what was read has not moved": (
        PLAIN,
        Transact((Step("derive", "w.b", source="w.a"),), at=(At("before-publish", Do((Outsider("append", "w.a"),))),)),
    ),
    "what was read does not move under a commit": (
        PLAIN,
        Transact((Step("derive", "w.b", source="w.a"),), at=(At("commit:target", Do((Outsider("append", "w.a"),))),)),
    ),
    "two journals do not publish a file twice": (
        PLAIN,
        Ingest("w.a", OTHER_FILE, at=(At("before-publish", Do((LoseJournal(), Ingest("w.a", OTHER_FILE)))),)),
    ),
    "checks are answered again for what moved": (
        PLAIN,
        Ingest(
            "w.a",
            ((1, 1),),
            checks="unique",
            at=(At("before-publish", Do((Ingest("w.a", ((2, 0),), checks="unique"),))),),
        ),
    ),
    "what others refer to is not reverted alone": (
        PLAIN,
        Ingest("w.b", OTHER_FILE, checks="fk"),
        Revert(1),
    ),
    "what is reached is not collected": (PLAIN, Collect()),
    "of two upserts one is done again": (
        PLAIN,
        Transact(
            (Step("upsert", "w.a", keys=(7,)),),
            at=(At("before-publish", Do((Transact((Step("upsert", "w.a", keys=(7,)),)),))),),
        ),
    ),
    "of two that create by overwriting one is done again": (
        Transact(
            (Step("overwrite", "w.a", keys=(0,)),),
            at=(At("before-publish", Do((Transact((Step("overwrite", "w.a", keys=(1,)),)),))),),
        ),
    ),
    "who wakes too late leaves no claims": (
        Ingest(
            "w.a",
            ((1, 1), (3, 1)),
            on_changed="replace",
            on_failure="drop",
            on_busy="skip",
            at=(
                At("journal:claim", Stall((Ingest("w.a", ((2, 1), (1, 0)), on_changed="append", on_busy="skip"),))),
                At("journal:end", Break("never")),
            ),
        ),
    ),
    "appenders all publish": (
        Ingest(
            "w.a",
            FILE,
            at=(At("before-publish", Do((Ingest("w.a", OTHER_FILE, at=(At("commit:target", Break("late")),)),))),),
        ),
    ),
}


@pytest.mark.parametrize("history", FOUND.values(), ids=FOUND.keys())
def test_a_history_that_once_failed_holds(history: History) -> None:
    play(history, in_memory())


def test_histories_at_random_hold() -> None:
    result = prove(HISTORIES, SEED, shrink=False)

    assert not result.failures, "\n\n".join(result.failures)
    assert result.cases >= HISTORIES
