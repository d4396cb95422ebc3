"""The history checker finds every planted anomaly, and none in serial histories."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs.history import Operation, Recorder, Result, Step, to_json_lines
from proofs.serializability import check, unexplained

FAR = 10.0
"""So much later that nobody can have been there at the same time."""


def op(*steps: tuple[Any, ...], at: float = 0.0, result: Result = "ok", process: int | None = None) -> Operation:
    """Return an operation that may have taken effect at any time from ``at`` to one second later."""
    number = int(at) if process is None else process
    end = inf if result == "unknown" else at + 1
    return Operation("op", number, at, end, result, tuple(Step(*step) for step in steps))


def names(*history: Operation) -> set[str]:
    return {anomaly.name for anomaly in check(history).anomalies}


LISTS: dict[str, tuple[str, list[Operation]]] = {
    "write cycle": (
        "G0",
        [
            op(("append", "x", 1), ("append", "y", 1)),
            op(("append", "x", 2), ("append", "y", 2)),
            op(("r", "x", [1, 2]), at=FAR),
            op(("r", "y", [2, 1]), at=FAR),
        ],
    ),
    "aborted read": ("G1a", [op(("append", "x", 1), result="failed"), op(("r", "x", [1]), at=FAR)]),
    "intermediate read": ("G1b", [op(("append", "x", 1), ("append", "x", 2)), op(("r", "x", [1]))]),
    "circular information flow": (
        "G1c",
        [op(("append", "x", 1), ("r", "y", [1])), op(("append", "y", 1), ("r", "x", [1]))],
    ),
    "read skew": (
        "G-single",
        [op(("append", "x", 1), ("append", "y", 1)), op(("r", "x", [1]), ("r", "y", [])), op(("r", "y", [1]), at=FAR)],
    ),
    "lost update": (
        "lost-update",
        [
            op(("r", "x", []), ("append", "x", 1)),
            op(("r", "x", []), ("append", "x", 2)),
            op(("r", "x", [1, 2]), at=FAR),
        ],
    ),
    "write skew": (
        "G2-item",
        [op(("r", "x", []), ("append", "y", 1)), op(("r", "y", []), ("append", "x", 1)), op(("r", "x", [1]), at=FAR)],
    ),
    "lost append": ("G-single-realtime", [op(("append", "x", 1)), op(("r", "x", []), at=FAR)]),
    "stale read": (
        "G-single-realtime",
        [op(("append", "x", 1)), op(("r", "x", [1]), at=FAR), op(("r", "x", []), at=2 * FAR)],
    ),
    "out of order": (
        "G1c-realtime",
        [
            op(("append", "x", 1)),
            op(("append", "x", 2), at=FAR),
            op(("r", "x", [2]), at=2 * FAR),
            op(("r", "x", [2, 1])),
        ],
    ),
    "diverged": (
        "incompatible-order",
        [*(op(("append", "x", v)) for v in (1, 2)), *(op(("r", "x", [v])) for v in (1, 2))],
    ),
    "twice": ("duplicate", [op(("append", "x", 1)), op(("r", "x", [1, 1]))]),
    "out of nowhere": ("unwritten", [op(("r", "x", [7]))]),
    "blind to itself": ("internal", [op(("append", "x", 1), ("r", "x", []))]),
    "before it was written": ("future-read", [op(("r", "x", [1]), ("append", "x", 1))]),
    "before it was asked": ("G1c-realtime", [op(("r", "x", [1])), op(("append", "x", 1), at=FAR)]),
}
REGISTERS: dict[str, tuple[str, list[Operation]]] = {
    "aborted read": ("G1a", [op(("w", "x", 1), result="failed"), op(("get", "x", 1))]),
    "intermediate read": ("G1b", [op(("w", "x", 1), ("w", "x", 2)), op(("get", "x", 1))]),
    "circular information flow": ("G1c", [op(("w", "x", 1), ("get", "y", 1)), op(("w", "y", 1), ("get", "x", 1))]),
    "lost update": (
        "lost-update",
        [op(("w", "x", 0)), *(op(("get", "x", 0), ("w", "x", v), at=FAR) for v in (1, 2)), op(("get", "x", 2), at=20)],
    ),
    "read skew": (
        "G-single",
        [op(("w", "x", 1), ("w", "y", 1)), op(("get", "x", 1), ("get", "y", None))],
    ),
    "write skew": ("G2-item", [op(("get", "x", None), ("w", "y", 1)), op(("get", "y", None), ("w", "x", 1))]),
    "back to an older value": (
        "G-single-realtime",
        [op(("w", "x", 1)), op(("w", "x", 2), at=FAR), op(("get", "x", 1), at=2 * FAR)],
    ),
    "no order of two writers": (
        "G-single-realtime",
        [
            *(op(("w", "x", v)) for v in (1, 2)),
            *(op(("get", "x", v), at=FAR * place) for place, v in enumerate((1, 2, 1), 1)),
        ],
    ),
    "out of nowhere": ("unwritten", [op(("get", "x", 7))]),
    "blind to itself": ("internal", [op(("w", "x", 1), ("get", "x", None))]),
}
BAGS: dict[str, tuple[str, list[Operation]]] = {
    "rejected rows": ("G1a", [op(("add", "t", (1, 2)), result="failed"), op(("rows", "t", (1, 2)))]),
    "half a batch": ("G1b", [op(("add", "t", (1, 2))), op(("rows", "t", (1,)))]),
    "half a transaction": (
        "G-single",
        [op(("add", "t", (1,)), ("add", "u", (1,))), op(("rows", "t", (1,)), ("rows", "u", ()))],
    ),
    "a row twice": ("duplicate", [op(("add", "t", (1,))), op(("rows", "t", (1, 1)))]),
    "lost rows": ("G-single-realtime", [op(("add", "t", (1,))), op(("rows", "t", ()), at=FAR)]),
    "rows that come and go": (
        "G-single-realtime",
        [op(("add", "t", (1,))), *(op(("rows", "t", rows), at=FAR * n) for n, rows in enumerate(((1,), ()), 1))],
    ),
    "long fork": (
        "G2-item",
        [
            *(op(("add", "t", (v,))) for v in (1, 2)),
            *(op(("rows", "t", (v,)), process=v) for v in (1, 2)),
        ],
    ),
    "reverted and still there": (
        "G-single-realtime",
        [op(("add", "t", (1,))), op(("remove", "t", (1,)), at=FAR), op(("rows", "t", (1,)), at=2 * FAR)],
    ),
    "a restore that brought too much": (
        "G-single-realtime",
        [
            op(("add", "t", (1,))),
            op(("add", "t", (2,)), at=FAR),
            op(("reset", "t", (1,)), at=2 * FAR),
            op(("rows", "t", (1, 2)), at=3 * FAR),
        ],
    ),
    "a restore that took what came after": (
        "G-single-realtime",
        [
            op(("add", "t", (1,))),
            op(("reset", "t", (1,)), at=FAR),
            op(("add", "t", (2,)), at=2 * FAR),
            op(("rows", "t", (1,)), at=3 * FAR),
        ],
    ),
    "brought back by nobody": (
        "G-single-realtime",
        [
            op(("add", "t", (1,))),
            op(("remove", "t", (1,)), at=FAR),
            op(("rows", "t", ()), at=2 * FAR),
            op(("rows", "t", (1,)), at=3 * FAR),
        ],
    ),
}
PLANTED = {
    f"{model}: {name}": case
    for model, cases in (("lists", LISTS), ("registers", REGISTERS), ("bags", BAGS))
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_anomaly_is_found_and_named(case: str) -> None:
    name, history = PLANTED[case]
    assert name in names(*history), check(history)


def test_an_unknown_outcome_may_have_happened_or_not() -> None:
    lost = op(("add", "t", (1,)), result="unknown")
    assert not names(lost, op(("rows", "t", ()), at=FAR))
    assert not names(lost, op(("rows", "t", ()), at=FAR), op(("rows", "t", (1,)), at=2 * FAR))
    assert names(lost, op(("rows", "t", (1,)), at=FAR), op(("rows", "t", ()), at=2 * FAR))


def test_a_row_may_go_and_come_back() -> None:
    history = [op(("add", "t", (1,))), op(("remove", "t", (1,)), at=FAR), op(("add", "t", (1,)), at=3 * FAR)]
    reads = [op(("rows", "t", rows), at=when) for rows, when in (((1,), 5.0), ((), 2 * FAR), ((1,), 4 * FAR))]
    assert check([*history, *reads]).order


def test_the_order_is_given() -> None:
    late, early = op(("add", "t", (1,))), op(("rows", "t", ()))
    assert check([late, early]).order == [early, late]


@st.composite
def serial(draw: st.DrawFn, *, longest: int = 20) -> list[Operation]:
    """Return serial operations with intervals that overlap."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    state: dict[str, Any] = {"list": [], "other": [], "register": None, "bag": frozenset()}
    past = [frozenset[int]()]
    history = []
    for number in range(draw(st.integers(1, longest))):
        result: Result = chance.choices(("ok", "unknown", "failed"), (8, 1, 1))[0]
        steps = [step for key in chance.sample(sorted(state), 2) for step in _steps(chance, key, number, state, past)]
        if result == "ok" or (result == "unknown" and chance.random() < 0.5):
            state = _after(steps, state)
            past.append(state["bag"])
        start, end = number - chance.uniform(0, 4), number + chance.uniform(0, 4)
        history.append(Operation("op", number, start, inf if result == "unknown" else end, result, tuple(steps)))
    return draw(st.permutations(history))


def _steps(
    chance: random.Random, key: str, number: int, state: dict[str, Any], past: list[frozenset[int]]
) -> Iterator[Step]:
    reads = chance.random() < 0.6
    writes = not reads or chance.random() < 0.4
    match key:
        case "register":
            yield from [Step("get", key, state[key])] * reads
            yield from [Step("w", key, number)] * writes
        case "bag":
            yield from [Step("rows", key, tuple(state[key]))] * reads
            pair = chance.choice(sorted(state[key]) or [2 * number]) // 2
            more, fewer = Step("add", key, (2 * number, 2 * number + 1)), Step("remove", key, (2 * pair, 2 * pair + 1))
            yield from chance.sample((more, fewer, Step("reset", key, tuple(chance.choice(past)))), int(writes))
        case _:
            yield from [Step("r", key, state[key])] * reads
            yield from [Step("append", key, number)] * writes


def _after(steps: Sequence[Step], state: dict[str, Any]) -> dict[str, Any]:
    state = dict(state)
    for kind, key, value in steps:
        match kind:
            case "append":
                state[key] = [*state[key], value]
            case "w":
                state[key] = value
            case "add":
                state[key] = state[key] | set(value)
            case "remove":
                state[key] = state[key] - set(value)
            case "reset":
                state[key] = frozenset(value)
    return state


@given(serial())
@settings(deadline=None)
def test_a_serial_history_has_no_anomaly(history: list[Operation]) -> None:
    verdict = check(history)
    assert not verdict.anomalies
    assert verdict.order is not None


@given(serial(longest=6), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_what_was_read_otherwise_has_an_order_if_trying_all_of_them_finds_one(
    history: list[Operation], chance: random.Random
) -> None:
    reads = [(one, step) for one in history for step in one.steps if step.kind in ("r", "get", "rows")]
    if reads:
        one, step = chance.choice(reads)
        number = chance.choice(history).process
        other = {"r": step.value[:-1] if step.kind == "r" else None, "get": chance.choice([None, number])}
        changed = {
            **other,
            "rows": {2 * number, 2 * number + 1} ^ set(step.value or ()) if step.kind == "rows" else None,
        }
        steps = tuple(step._replace(value=changed[step.kind]) if each is step else each for each in one.steps)
        history[history.index(one)] = replace(one, steps=steps)
    assert (not check(history).anomalies) == _has_order(history)


def _has_order(history: Sequence[Operation]) -> bool:
    certain = [one for one in history if one.result == "ok"]
    perhaps = [one for one in history if one.result == "unknown"]
    return any(
        not any(later.end < one.start for place, one in enumerate(order) for later in order[place + 1 :])
        and not list(unexplained(order))
        for number in range(len(perhaps) + 1)
        for happened in combinations(perhaps, number)
        for order in permutations([*certain, *happened])
    )


def test_histories_are_written_as_others_read_them() -> None:
    recorder = Recorder()
    with recorder.operation("transaction", 1, Step("append", "x", 1), Step("add", "t", (1,))) as one:
        one.steps.append(Step("r", "x", [1]))
        one.result = "ok"
    with pytest.raises(OSError, match="the disk is full"), recorder.operation("killed", 2, Step("append", "x", 2)):
        raise OSError("the disk is full")
    events = [json.loads(line) for line in to_json_lines(recorder.operations)]
    assert [(event["type"], event["value"]) for event in events] == [
        ("invoke", [["append", "x", 1], ["r", "x", None]]),
        ("ok", [["append", "x", 1], ["r", "x", [1]]]),
        ("invoke", [["append", "x", 2]]),
        ("info", [["append", "x", 2]]),
    ]
