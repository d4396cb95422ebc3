"""``revert``, ``tag``, ``branch reset`` and ``table restore``, on a fake lake."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lakegate.errors import InputError, NotRevertableError
from lakegate.model.maintenance import MaintenanceReport, MaintenanceStep
from lakegate.model.refs import Ref
from lakegate.model.run import Publication, RunError, UndoneTable
from support.cli_support import HASH, PUBLISHED, RUN_ID, FakeLake, invoke, make_run, staged

pytestmark = pytest.mark.usefixtures("in_a_project")

OTHER = "20260131T080000-5e6f7a8b"
UNDOING = make_run(
    "published",
    run_id="20260131T090000-00000000",
    kind="revert",
    tables=("nyc.trips", "nyc.zones"),
    branch="",
    request=None,
    reverts=(OTHER, RUN_ID),
    undone=(
        UndoneTable(table="nyc.trips", rows=-1_000, data_files=-3),
        UndoneTable(table="nyc.zones", rows=-5, data_files=-1, dropped=True),
    ),
    publication=Publication(
        run_id="20260131T090000-00000000", target="main", commit=HASH, tables=("nyc.trips", "nyc.zones"), rows=0
    ),
)
PLANNED = UNDOING.model_copy(update={"status": "skipped", "publication": None, "detail": "Dry run: it."})


def test_revert_shows_tables_rows_files_and_commit() -> None:
    lake = FakeLake(revert=UNDOING)
    outcome = invoke(["revert", RUN_ID], lake)
    text = outcome.stdout

    assert outcome.exit_code == 0
    assert lake.calls == [("revert", (RUN_ID,), {"dry_run": False})]
    assert f"reverted  nyc.trips, nyc.zones in commit {HASH[:12]}" in text
    for words in (OTHER, RUN_ID, "-1,000", "-3", "dropped", "lakegate log --limit 5"):
        assert words in text


def test_revert_json_is_one_object() -> None:
    told = json.loads(invoke(["revert", RUN_ID, "-o", "json"], FakeLake(revert=UNDOING)).stdout)
    assert told["status"] == "published"
    assert told["commit"] == HASH
    assert told["reverts"] == [OTHER, RUN_ID]
    assert told["undone"][1] == {"table": "nyc.zones", "rows": -5, "data_files": -1, "dropped": True}


def test_a_dry_run_prints_the_command_to_run() -> None:
    lake = FakeLake(revert=PLANNED)
    outcome = invoke(["revert", "20260131", "--dry-run"], lake)

    assert outcome.exit_code == 0
    assert lake.asked("revert") == {"dry_run": True}
    assert "nothing changed" in outcome.stdout
    assert "lakegate revert 20260131\n" in outcome.stdout


def test_a_refused_revert_exits_with_2_and_suggests_a_command() -> None:
    error = NotRevertableError("Run a can't be reverted: run b.", hint="lakegate table restore t --at TIME")
    outcome = invoke(["revert", "a"], FakeLake(revert=error))
    assert outcome.exit_code == 2
    assert "lakegate table restore t --at TIME" in outcome.stderr
    told = json.loads(invoke(["revert", "a", "-o", "json"], FakeLake(revert=error)).stdout)
    assert told["error"]["code"] == "not-revertable"


def test_tags_are_listed_created_and_deleted() -> None:
    tag = Ref(name="v1", hash=HASH, kind="tag")
    lake = FakeLake(tags_list=[tag], tags_create=tag, tags_delete=tag)
    assert HASH in invoke("tag list", lake).stdout
    assert json.loads(invoke("tag list -o json", lake).stdout) == [{"name": "v1", "hash": HASH, "kind": "tag"}]
    assert f"created  tag v1 at commit {HASH}" in invoke("tag create v1 --from dev --at 2026-01-31", lake).stdout
    assert lake.asked("tags_create") == {"source": "dev", "at": "2026-01-31"}
    assert f"lakegate tag create v1 --from {HASH}" in invoke("tag delete v1", lake).stdout
    none = invoke("tag list", FakeLake(tags_list=[]))
    assert (none.stdout, none.stderr) == ("", "No tags.\n")


def test_a_branch_is_reset() -> None:
    lake = FakeLake(branches_reset=Ref(name="dev", hash=HASH))
    outcome = invoke("branch reset dev --to main --at 2026-01-31", lake)
    assert f"reset  branch dev to commit {HASH}" in outcome.stdout
    assert lake.calls == [("branches_reset", ("dev",), {"to": "main", "at": "2026-01-31", "force": False})]
    assert invoke("branch reset dev", lake).exit_code == 2


def test_main_is_not_reset_without_force() -> None:
    refusal = InputError("Resetting 'main' throws commits out.", hint="lakegate revert RUN")
    outcome = invoke("branch reset main --to dev", FakeLake(branches_reset=refusal))
    assert (outcome.exit_code, "lakegate revert RUN" in outcome.stderr) == (2, True)


def test_a_table_is_restored() -> None:
    lake = FakeLake(restore_table=UNDOING.model_copy(update={"kind": "restore"}))
    outcome = invoke("table restore nyc.trips --at 2026-01-31", lake)
    assert f"restored  nyc.trips in commit {HASH[:12]}" in outcome.stdout
    assert lake.calls == [("restore_table", ("nyc.trips",), {"at": "2026-01-31"})]
    assert invoke("table restore nyc.trips", lake).exit_code == 2
    assert json.loads(invoke("table restore nyc.trips --at x -o json", lake).stdout)["undone"][0]["rows"] == -1000


def test_tables_are_optimized_expired_and_dropped() -> None:
    work = PUBLISHED.model_copy(update={"kind": "maintenance"})
    lake = FakeLake(maintenance_optimize=work, maintenance_expire=UNDOING, drop_table=UNDOING)
    outcome = invoke(["table", "optimize", "nyc.trips", "--sort", "zorder(a, b)", "--where", "a > 1"], lake)
    assert f"optimized  nyc.trips in commit {HASH[:12]}\n" in outcome.stdout
    assert "expired  old snapshots of nyc.trips" in invoke("table expire nyc.trips --older-than 30d", lake).stdout
    assert "dropped  nyc.trips" in invoke("table drop nyc.trips --yes", lake).stdout
    assert lake.calls == [
        ("maintenance_optimize", ("nyc.trips",), {"sort": "zorder(a, b)", "where": "a > 1"}),
        ("maintenance_expire", ("nyc.trips",), {"older_than": timedelta(days=30), "keep": 1}),
        ("drop_table", ("nyc.trips",), {}),
    ]
    asked = invoke("table drop nyc.trips", lake)
    assert (asked.exit_code, "Pass --yes" in asked.stderr) == (2, True)
    skipped = FakeLake(maintenance_optimize=work.model_copy(update={"status": "skipped", "publication": None}))
    assert "nothing changed  nyc.trips has no files to compact" in invoke("table optimize nyc.trips", skipped).stdout
    assert json.loads(invoke("table optimize nyc.trips -o json", lake).stdout)["status"] == "published"
    assert invoke("table expire nyc.trips --older-than 30d --keep 0", lake).exit_code == 2


def test_tables_are_renamed_and_truncated() -> None:
    emptied = PUBLISHED.model_copy(update={"kind": "transaction", "staged": (staged("nyc.trips"),)})
    lake = FakeLake(rename_table=UNDOING, truncate_table=emptied)
    assert "renamed  nyc.trips to nyc.rides" in invoke("table rename nyc.trips nyc.rides --yes", lake).stdout
    assert "published" in invoke("table truncate nyc.trips --yes", lake).stdout
    assert lake.calls == [
        ("rename_table", ("nyc.trips", "nyc.rides"), {}),
        ("truncate_table", ("nyc.trips",), {}),
    ]
    skipped = FakeLake(truncate_table=emptied.model_copy(update={"status": "skipped", "publication": None}))
    assert "nyc.trips has no rows" in invoke("table truncate nyc.trips --yes", skipped).stdout
    assert [invoke(f"table {what}", lake).exit_code for what in ("truncate nyc.trips", "rename nyc.trips nyc.x")] == [
        2,
        2,
    ]


def test_maintenance_shows_what_was_due_and_the_outcomes() -> None:
    steps = (
        MaintenanceStep(table="nyc.trips", action="compact", reason="90 files below 64m", status="done", run_id=RUN_ID),
        MaintenanceStep(
            table="nyc.zones",
            action="expire",
            reason="3 snapshots older than 30d",
            status="failed",
            error=RunError(code="retryable", message="busy", hint="Wait."),
            retryable=True,
        ),
        MaintenanceStep(table="nyc.old", action="compact", reason="20 files below 64m", status="left"),
    )
    report = MaintenanceReport(dry_run=False, tables=4, steps=steps)
    lake = FakeLake(maintenance_maintain=report)
    outcome = invoke(["admin", "maintain", "nyc.*", "--within", "1h", "--no-gc"], lake)
    assert (outcome.exit_code, lake.calls) == (
        3,
        [("maintenance_maintain", (("nyc.*",),), {"dry_run": False, "within": timedelta(hours=1), "gc": False})],
    )
    assert "maintained  4 tables: 1 step done, 1 failed" in outcome.stdout
    for said in ("90 files below 64m; run", "busy", "Wait.", "The next round will do the rest."):
        assert said in outcome.stdout
    assert json.loads(invoke("admin maintain -o json", lake).stdout)["steps"][1]["error"]["message"] == "busy"
    due = FakeLake(maintenance_maintain=report.model_copy(update={"dry_run": True, "steps": steps[2:]}))
    outcome = invoke("admin maintain --dry-run", due)
    assert (outcome.exit_code, "1 step due for 4 tables" in outcome.stdout) == (0, True)
    assert "lakegate admin maintain\n" in outcome.stdout
