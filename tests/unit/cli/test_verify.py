"""``lakegate admin verify``."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lakegate.model.maintenance import VerifyFinding, VerifyReport
from support.cli_support import HASH, RUN_ID, FakeLake, invoke

pytestmark = pytest.mark.usefixtures("in_a_project")

MISSING = VerifyFinding(
    kind="missing-file",
    message="4 data files that nyc.trips on main needs are missing.",
    fix=f"Or: lakegate revert {RUN_ID}",
    table="nyc.trips",
    run_id=RUN_ID,
    files=tuple(f"file:///lake/[bold]{number}\x1b.parquet" for number in range(4)),
    number=4,
)
FOREIGN = VerifyFinding(kind="foreign-commit", message="Commit.", fix="lakegate log", table="nyc.trips", commit=HASH)
REPORT = VerifyReport(deep=False, tables=2, states=30, files=1200, size_bytes=3_400_000, commits=31, runs=29)


def test_verify_lists_problems_and_exits_with_1() -> None:
    lake = FakeLake(maintenance_verify=REPORT.model_copy(update={"findings": (MISSING, *[FOREIGN] * 12)}))
    outcome = invoke("admin verify nyc.trips --deep --since v1 --grace 2h", lake)
    assert outcome.exit_code == 1
    asked = {"deep": True, "since": "v1", "grace": timedelta(hours=2)}
    assert lake.calls == [("maintenance_verify", (("nyc.trips",),), asked)]
    for part in (
        "13 problems\n",
        "checked: 2 tables in 30 states, 1,200 files (3.4 MB), 31 commits of main by 29 runs\n",
        "  missing-file  4 data files that nyc.trips on main needs are missing.\n",
        "file:///lake/[bold]2",
        "… 1 more; --output json lists them\n",
        f"    Or: lakegate revert {RUN_ID}\n",
        "… 2 more of foreign-commit; --output json lists them\n",
    ):
        assert part in outcome.stdout, part
    assert "\x1b" not in outcome.stdout
    assert "[bold]3" not in outcome.stdout
    told = json.loads(
        invoke(
            "admin verify -o json", FakeLake(maintenance_verify=REPORT.model_copy(update={"findings": (MISSING,)}))
        ).stdout
    )
    assert (told["passed"], told["findings"][0]["kind"], len(told["findings"][0]["files"])) == (
        False,
        "missing-file",
        4,
    )


def test_verify_of_a_sound_lake_exits_with_0() -> None:
    outcome = invoke("admin verify", FakeLake(maintenance_verify=REPORT))
    assert (outcome.exit_code, outcome.stdout.splitlines()[0]) == (0, "sound  no problems")
