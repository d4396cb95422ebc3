"""``lakegate admin recover``, ``gc`` and ``journal``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest

from lakegate.errors import CatalogUnavailableError, RetryableError
from lakegate.model.maintenance import (
    CollectedFolder,
    ExpiredBranch,
    GcProblem,
    GcReport,
    JournalStatus,
    RebuiltJournal,
)
from lakegate.model.refs import Ref
from lakegate.model.run import Run, RunError
from support.cli_support import BRANCH, HASH, OTHER_RUN, PUBLISHED, REJECTED, RUN_ID, START, FakeLake, invoke, make_run

pytestmark = pytest.mark.usefixtures("in_a_project")

REPORT = GcReport(
    dry_run=False,
    branches=(ExpiredBranch(branch=BRANCH, run_id=RUN_ID, finished_at=START, age_s=700_000),),
    folders=(
        CollectedFolder(
            folder="file:///lake/nyc/trips",
            files=1200,
            size_bytes=3_400_000,
            sample=("file:///lake/nyc/trips/data/a.parquet",),
        ),
    ),
    reached_files=12,
    young_files=3,
    ignored_files=1,
    problems=(GcProblem(subject="b", message="Branch b is kept.", hint="lakegate discard b"),),
)
STATUS = JournalStatus(
    location="postgresql://me@db/lake",
    version="0003",
    synced=HASH,
    runs={"published": 11, "planned": 1},
    files=1_234,
    newest=RUN_ID,
)


# recover --------------------------------------------------------------------------------------------------------------


def test_recover_shows_the_outcome_of_each_run() -> None:
    published = PUBLISHED.model_copy(update={"detail": "Was published already; now recorded."})
    undone = make_run(
        "failed",
        detail="Undone: nothing of it was published.",
        error=RunError(code="error", message="Its process ended."),
    )
    rejected = REJECTED.model_copy(update={"detail": "Its audit had failed."})
    outcome = invoke("admin recover", FakeLake(recover=(published, undone, rejected), maintenance_suspended_runs={}))
    assert outcome.exit_code == 0
    for part in (
        "Was published already; now recorded.",
        "Undone: nothing of it was published. Its process ended.",
        "Its audit had failed.",
        f"lakegate runs {RUN_ID}\n",
    ):
        assert part in outcome.stdout
    told = json.loads(
        invoke("admin recover -o json", FakeLake(recover=(published, undone), maintenance_suspended_runs={})).stdout
    )
    assert [(one["status"], one["detail"]) for one in told] == [
        ("published", "Was published already; now recorded."),
        ("failed", "Undone: nothing of it was published."),
    ]


def test_with_nothing_to_recover_no_data_is_printed() -> None:
    outcome = invoke("admin recover", FakeLake(recover=(), maintenance_suspended_runs={}))
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "No run to recover.\n")
    assert json.loads(invoke("admin recover -o json", FakeLake(recover=(), maintenance_suspended_runs={})).stdout) == []
    assert invoke("admin recover", FakeLake(recover=CatalogUnavailableError("away"))).exit_code == 3


def test_a_run_that_could_not_be_recovered_is_not_nothing() -> None:
    left = STATUS.model_copy(update={"abandoned": (RUN_ID, OTHER_RUN)})
    outcome = invoke(
        "admin recover", FakeLake(recover=(), maintenance_suspended_runs={}, maintenance_journal_status=left)
    )
    assert (outcome.exit_code, outcome.stdout) == (3, "")
    assert outcome.stderr.startswith(f"Run {RUN_ID} and 1 more couldn't be recovered.\n")
    assert f"lakegate admin recover {RUN_ID}\n" in outcome.stderr

    outcome = invoke(
        "admin recover -o json",
        FakeLake(recover=(PUBLISHED,), maintenance_suspended_runs={}, maintenance_journal_status=left),
    )
    assert (outcome.exit_code, len(json.loads(outcome.stdout))) == (3, 1)


def test_a_run_that_another_process_still_recovers_is_not_nothing() -> None:
    status = STATUS.model_copy(update={"abandoned": (), "recovering": {RUN_ID: "process 17"}})
    lake = FakeLake(recover=(), maintenance_suspended_runs={}, maintenance_journal_status=status)
    outcome = invoke("admin recover", lake)
    assert (outcome.exit_code, outcome.stdout) == (3, "")
    assert f"Run {RUN_ID} is still being recovered by process 17." in outcome.stderr


def test_recover_tries_each_run_and_shows_the_outcome_of_those_that_could_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def recover(_: FakeLake, names: Sequence[str]) -> tuple[Run, ...]:
        if names[0] in {"B", "C"}:
            raise CatalogUnavailableError(f"No {names[0]}.")
        return (PUBLISHED.model_copy(update={"run_id": names[0]}),)

    monkeypatch.setattr(FakeLake, "recover", recover, raising=False)
    for given in ("admin recover A B C D", "admin recover A B C D A -o json"):
        outcome = invoke(given, FakeLake())
        assert outcome.exit_code == 3
        assert "No B. No C. Run A is published. Run D is published." in " ".join(outcome.stderr.split())
    assert json.loads(outcome.stdout)["error"]["code"] == CatalogUnavailableError.code
    assert [one["run_id"] for one in json.loads(invoke("admin recover A D A -o json", FakeLake()).stdout)] == ["A", "D"]


def test_recover_recovers_only_the_named_runs() -> None:
    lake = FakeLake(recover=(PUBLISHED,))
    outcome = invoke(f"admin recover {RUN_ID[:13]} {OTHER_RUN}", lake)
    assert outcome.exit_code == 0
    assert lake.calls == [("recover", ([name],), {}) for name in (RUN_ID[:13], OTHER_RUN)]
    assert RUN_ID in outcome.stdout

    taken = RetryableError(f"Another process is working on run {RUN_ID}.", hint=f"lakegate runs {RUN_ID}")
    outcome = invoke(f"admin recover {RUN_ID}", FakeLake(recover=taken))
    assert (outcome.exit_code, outcome.stdout) == (3, "")
    assert f"Another process is working on run {RUN_ID}." in outcome.stderr


# gc -------------------------------------------------------------------------------------------------------------------


def test_gc_shows_what_it_deleted() -> None:
    lake = FakeLake(maintenance_gc=REPORT)
    outcome = invoke("admin gc", lake)
    assert outcome.exit_code == 0
    assert lake.asked("maintenance_gc") == {"dry_run": False, "keep_rejected": None, "grace": None}
    for part in (
        "deleted  1 branch, 1,200 files, 3.4 MB",
        BRANCH,
        "file:///lake/nyc/trips ",
        "data/a.parquet",
        "12 old but referenced, 3 too young, 1 not written by lakegate",
        "Branch b is kept.",
        "lakegate discard b",
    ):
        assert part in outcome.stdout, part
    assert "Do it" not in outcome.stdout
    told = json.loads(invoke("admin gc -o json", FakeLake(maintenance_gc=REPORT)).stdout)
    assert (told["dry_run"], told["files"], told["size_bytes"]) == (False, 1200, 3_400_000)
    assert told["branches"][0]["branch"] == BRANCH


def test_gc_dry_run_shows_what_it_would_delete_and_the_command() -> None:
    lake = FakeLake(maintenance_gc=REPORT.model_copy(update={"dry_run": True}))
    outcome = invoke("admin gc --dry-run --keep-rejected 30d --grace 12h", lake)
    assert lake.asked("maintenance_gc") == {
        "dry_run": True,
        "keep_rejected": timedelta(days=30),
        "grace": timedelta(hours=12),
    }
    assert "would delete 1 branch, 1,200 files, 3.4 MB; nothing was deleted" in outcome.stdout
    assert "lakegate admin gc --keep-rejected 30d --grace 12h\n" in outcome.stdout
    nothing = invoke("admin gc --dry-run", FakeLake(maintenance_gc=GcReport(dry_run=True))).stdout
    assert "0 branches, 0 files, 0 B" in nothing
    assert "Next" not in nothing


@pytest.mark.parametrize("words", ["--grace soon", "--keep-rejected -1d", "--grace 999999w999", "--grace 1"])
def test_invalid_durations_are_usage_errors(words: str) -> None:
    lake = FakeLake(maintenance_gc=REPORT)
    outcome = invoke(f"admin gc {words}", lake)
    assert (outcome.exit_code, lake.calls) == (2, [])
    assert "30s, 15m, 12h, 7d, 2w" in outcome.stderr


# journal --------------------------------------------------------------------------------------------------------------


def test_journal_status_shows_its_location_and_content() -> None:
    text = invoke("admin journal status", FakeLake(maintenance_journal_status=STATUS)).stdout
    for part in ("postgresql://me@db/lake", "0003", "12 (1 planned, 11 published)", "1,234 published", RUN_ID, HASH):
        assert part in text
    assert "recover" not in text
    told = json.loads(invoke("admin journal status -o json", FakeLake(maintenance_journal_status=STATUS)).stdout)
    assert (told["runs"], told["files"], told["synced"]) == ({"published": 11, "planned": 1}, 1_234, HASH)


def test_journal_rebuild_shows_what_the_journal_holds() -> None:
    rebuilt = RebuiltJournal(head=Ref(name="main", hash=HASH), commits=1200, runs=1000, files=3000, rejected=2)
    text = invoke("admin journal rebuild", FakeLake(maintenance_rebuild_journal=rebuilt)).stdout
    assert "1,000 runs and 3,000 published files from 1,200 commits" in text
    assert "2 rejected runs from branches" in text
    assert HASH in text
    told = json.loads(invoke("admin journal rebuild -o json", FakeLake(maintenance_rebuild_journal=rebuilt)).stdout)
    assert told == {
        "head": {"name": "main", "hash": HASH, "kind": "branch"},
        "commits": 1200,
        "runs": 1000,
        "files": 3000,
        "rejected": 2,
        "lost": "",
    }


def test_journal_rebuild_shows_what_is_lost() -> None:
    rebuilt = RebuiltJournal(head=Ref(name="main", hash=HASH), commits=0, runs=0, files=0, lost="Branches are lost.")
    assert (
        "not rebuilt  Branches are lost."
        in invoke("admin journal rebuild", FakeLake(maintenance_rebuild_journal=rebuilt)).stdout
    )
