"""Each state of a run, and each thing that may happen to it then: how it ends, and what is on main."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import update

from lakegate.errors import EngineUnavailableError, InputError, LakegateError
from lakegate.journal.schema import LEASES, as_text
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.states import OPEN, TRANSITIONS, RunStatus, may_follow
from lakegate.wap import failpoints
from lakegate.wap.ingest import ingest, undo
from lakegate.wap.recover import recover
from lakegate.wap.review import discard_run, publish_branch
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, WITH_NULLS, branches, ordered
from support.steps_support import commits, ids, known, step

BRANCH = "wap/nyc.trips_r1"
AUDITED = {"audited", "audited, waiting", "committed", "found failing", "thrown away"}
"""States that have a report."""
Act = Callable[[FakeLakehouse, pytest.MonkeyPatch], object]


def expire(house: FakeLakehouse) -> None:
    """Let all leases run out."""
    with house.database.writing() as tx:
        tx.execute(update(LEASES).values(expires_at=as_text(datetime(2000, 1, 1, tzinfo=UTC))))


def dies(point: str, rows: list[dict[str, Any]] = CLEAN) -> Act:
    return lambda house, patch: house.dies_at(patch, point, lambda: ingest(house.context, ordered(house, rows)))


def suspends(*until: Any) -> Act:
    return lambda house, _: [step(house, one) for one in until]


def fails_and_dies(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    with patch.context() as failing:
        fail(house, failing, InputError("The disk is full of moths."))
        house.dies_at(failing, "before-close", lambda: ingest(house.context, ordered(house)))


def is_discarded_and_dies(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    step(house, "audit")
    house.dies_at(patch, "before-close", lambda: discard_run(house.context, BRANCH))


STATES: Mapping[str, tuple[RunStatus, Act]] = {
    "planned": ("planned", dies("after-claim")),
    "half written": ("planned", dies("after-stage")),
    "written, waiting": ("staged", suspends("write")),
    "being audited": ("staged", dies("after-audit")),
    "audited": ("audited", dies("before-publish")),
    "audited, waiting": ("audited", suspends("write", "audit")),
    "committed": ("audited", dies("after-publish")),
    "found failing": ("rejected", dies("before-close", WITH_NULLS)),
    "given up": ("failed", fails_and_dies),
    "thrown away": ("discarded", is_discarded_and_dies),
}


def fail(house: FakeLakehouse, patch: pytest.MonkeyPatch, error: LakegateError) -> None:
    """Let the work of the next step fail: the write, the audit, and the commit."""

    def raises(*_: Any, **__: Any) -> Any:
        raise error

    commit = house.catalog.commit

    def commits_to_branches(request: CommitRequest) -> Ref:
        return raises() if request.branch == "main" else commit(request)

    patch.setattr(house, "append", raises)
    patch.setattr(house, "count_failing", raises)
    patch.setattr(house.catalog, "commit", commits_to_branches)


def goes_on(house: FakeLakehouse, _: pytest.MonkeyPatch) -> None:
    step(house, "publish")


def is_recovered(house: FakeLakehouse, _: pytest.MonkeyPatch) -> None:
    expire(house)
    house.kill()
    recover(house.context)


def step_fails(error: LakegateError) -> Act:
    def act(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
        with patch.context() as failing:
            fail(house, failing, error)
            try:
                step(house, "publish", checks=("sql('passengers > 9')",))
            except type(error):
                pass
        is_recovered(house, patch)

    return act


def loses_lease(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    """Somebody else recovers it while it is worked on."""
    taken: list[str] = []

    def reach(point: str) -> None:
        if not taken:
            taken.append(point)
            expire(house)
            recover(house.context)

    with patch.context() as patched:
        patched.setattr("lakegate.wap.publish_lock._SETTLE_TIMEOUT_S", 0.05)
        patched.setattr("lakegate.wap.publish_lock._LOCK_TIMEOUT_S", 0.05)
        patched.setattr(failpoints, "reach", reach)
        with contextlib.suppress(LakegateError):
            step(house, "publish")
    is_recovered(house, patch)


def is_cancelled(house: FakeLakehouse, _: pytest.MonkeyPatch) -> None:
    house.kill()
    undo(house.context, "r1", reason="Enough.")


def is_discarded(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    house.kill()
    try:
        discard_run(house.context, BRANCH)
    except LakegateError:  # there is no branch
        is_recovered(house, patch)


def is_published_by_another_project(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    ours = house.database
    house.lose_journal()
    with contextlib.suppress(LakegateError):  # there may be nothing to publish
        publish_branch(house.context, BRANCH, configured=lambda _: ())
    house.database = ours
    is_recovered(house, patch)


def loses_branch(house: FakeLakehouse, patch: pytest.MonkeyPatch) -> None:
    if BRANCH in branches(house):
        house.catalog.delete_ref(house.catalog.get_ref(BRANCH))
    is_recovered(house, patch)


EVENTS: Mapping[str, Act] = {
    "its next step is taken": goes_on,
    "its process is gone": is_recovered,
    "a step fails for now": step_fails(EngineUnavailableError("Spark is away.")),
    "a step fails for good": step_fails(InputError("The disk is full of moths.")),
    "its lease is lost": loses_lease,
    "it is cancelled": is_cancelled,
    "its branch is discarded": is_discarded,
    "another project publishes it": is_published_by_another_project,
    "its branch is gone": loses_branch,
}


ENDS: Mapping[str, str] = {
    "planned": "published failed failed failed failed failed failed failed failed",
    "half written": "published failed failed failed failed failed discarded published failed",
    "written, waiting": "published failed published failed failed failed discarded published failed",
    "being audited": "published failed published failed failed failed discarded published failed",
    "audited": "published published published failed published failed discarded published failed",
    "audited, waiting": "published published published failed published failed discarded published failed",
    "committed": "published published published published published published published published published",
    "found failing": "rejected rejected rejected rejected rejected rejected discarded rejected rejected",
    "given up": "published failed failed failed failed failed discarded failed failed",
    "thrown away": "discarded discarded discarded discarded discarded discarded discarded discarded discarded",
}
"""How a run in each state ends after each event, in the order of the events."""


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_whatever_happens_to_a_run_it_ends_as_it_should(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, state: str, event: str
) -> None:
    status, reach = STATES[state]
    reach(house, monkeypatch)
    assert known(house).status == status
    EVENTS[event](house, monkeypatch)
    run = known(house)
    assert run.status == dict(zip(EVENTS, ENDS[state].split(), strict=True))[event]
    assert run.finished_at is not None
    is_published = run.status == "published"
    assert (ids(house), commits(house)) == (([1, 2], 1) if is_published else ([], 0))
    assert (run.branch in branches(house)) == run.branch_kept
    assert run.reports or state not in AUDITED, "evidence is lost"
    again = ingest(
        house.context, ordered(house, WITH_NULLS if state == "found failing" else CLEAN, run="r2", file="r1")
    )
    assert again.status == ("skipped" if is_published else "rejected" if state == "found failing" else "published")


def test_a_run_that_has_ended_is_never_open_again_by_itself() -> None:
    again = {
        before: sorted(TRANSITIONS[before].intersection(OPEN)) for before in get_args(RunStatus) if before not in OPEN
    }
    assert again == {
        "published": [],
        "reverted": [],
        "skipped": [],
        "rejected": ["audited", "staged"],
        "failed": ["audited", "created", "planned", "staged"],
        "discarded": ["audited", "created", "planned", "staged"],
    }


def test_only_what_was_audited_or_has_no_rows_is_published() -> None:
    assert [before for before in get_args(RunStatus) if may_follow(before, "published")] == [
        "planned",
        "audited",
        "published",
        "reverted",
    ]


def test_the_design_page_has_the_transitions() -> None:
    page = (Path(__file__).parents[3] / "docs/design/runs.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(" `"): cells[2] for line in page.splitlines() if len(cells := line.split("|")) > 2}
    for before, following in TRANSITIONS.items():
        assert re.findall(r"`(\w+)`", rows[before]) == [one for one in get_args(RunStatus) if one in following], before
