"""A run's branch, met by journals that don't know it, on real Spark and Nessie: one answer, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.config import TableSettings
from lakegate.errors import AlreadyPublishedError, AuditFailedError, InputError
from lakegate.lake import Lake
from lakegate.ledger.event import event_of
from support.e2e_support import Cli
from support.flow_support import when_reached
from support.lakes import components_of
from support.ledger_support import event_in
from support.other_project import other_project

pytestmark = pytest.mark.jvm

NULLS: list[dict[str, Any]] = [{"id": 1, "day": "mon"}, {"id": None, "day": "tue"}]
CLEAN: list[dict[str, Any]] = [{"id": 2, "day": "wed"}, {"id": 3, "day": "thu"}]
COLUMNS: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("day", pa.string())]
SCHEMA = pa.schema(COLUMNS)


def file(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    return path


def ids(lake: Lake, table: str) -> list[int | None]:
    found = lake.table(table).to_arrow(columns=["id"])["id"].to_pylist()
    return sorted(found, key=lambda value: (value is not None, value))


def test_a_rejected_batch_stays_rejected_in_any_journal_and_is_accepted_by_name(
    lake: Lake, components: Components, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.trips"
    bad = file(tmp_path, "bad", NULLS)
    lake.ingest(table, file(tmp_path, "clean", CLEAN), checks=["not_null(id)"])
    rejected = lake.ingest(table, bad, checks=["not_null(id)"], branch=f"wap/{namespace}_bad", on_rejected="return")
    assert rejected.status == "rejected"

    with other_project(components, tmp_path / "other") as other:
        with pytest.raises(AuditFailedError, match=r"failed not_null\(id\)"):
            other.publish(rejected.branch)
        assert lake.audit(table, branch=rejected.branch, checks=["row_count(min=1)"]).passed
        for one in (lake, other):
            with pytest.raises(AuditFailedError, match=r"failed not_null\(id\)"):
                one.publish(rejected.branch)
        assert other.runs(status="rejected")[0].run_id == rejected.run_id
        assert ids(lake, table) == [2, 3]

    monkeypatch.setenv("LAKEGATE_ACTOR", "ada")
    with other_project(components, tmp_path / "third") as third:
        copy = third.branches.create(f"{namespace}-copy", rejected.branch)
        assert third.maintenance.rebuild_journal().rejected >= 1
        with pytest.raises(InputError, match="needs a reason"):
            third.publish(copy.name, accept=" ")
        run = third.publish(copy.name, accept="the meters were off")
        assert run.accepted is not None
        assert (run.run_id, run.status, run.accepted.actor) == (rejected.run_id, "published", "ada")
        assert [result.failing_rows for result in run.failures] == [1]
        commit = next(iter(third.log(limit=1)))
        accepted = event_in(commit).accepted
        assert accepted is not None
        assert (accepted.reason, accepted.actor) == ("the meters were off", "ada")
        assert [uri for uri, _ in event_in(commit).files] == [bad.as_uri()]
        assert third.ingest(table, bad).status == "skipped"
    assert lake.publish(rejected.branch).status == "published"
    assert lake.ingest(table, bad).status == "skipped"
    assert ids(lake, table) == [None, 1, 2, 3]


def test_runs_that_nobody_audited_are_audited_by_their_own_checks(
    lake: Lake, components: Components, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, totals = f"{namespace}.trips", f"{namespace}.totals"
    suspended = lake.write(table, file(tmp_path, "suspended", NULLS), checks=["not_null(id)"])
    good = lake.write(f"{namespace}.good", file(tmp_path, "good", CLEAN), checks=["unique(id)"])
    with pytest.raises(AuditFailedError), lake.transaction("both") as tx:
        tx.append(totals, pa.Table.from_pylist(CLEAN, schema=SCHEMA))
        tx.append(f"{namespace}.more", pa.Table.from_pylist(NULLS, schema=SCHEMA))
        tx.check(f"{namespace}.more", "row_count(min=3)")
        tx.check(totals, "not_null(id)")
    settings = {"tables": {f"{namespace}.good": TableSettings(checks=["row_count(min=3)"])}}

    with other_project(components, tmp_path / "other", **settings) as other:
        for branch, failed in (
            (suspended.branch, "not_null"),
            (tx.branch, "row_count"),
            (good.branch, "row_count"),
        ):
            with pytest.raises(AuditFailedError, match=f"failed {failed}"):
                other.publish(branch)
        asked = {result.check for result in other.run(good.run_id).reports[0].results}
        assert asked == {"unique(id)", "row_count(min=3)"}
    with other_project(components, tmp_path / "third") as third:
        # A mended branch is another state: it is audited anew, by what its run was asked.
        rows = components_of(third).engine.transaction(suspended.branch, "")
        rows.sql(f"DELETE FROM {table} WHERE id IS NULL")
        rows.close()
        mended = third.publish(suspended.branch)
        assert (mended.run_id, mended.status) == (suspended.run_id, "published")
        assert [result.check for result in mended.reports[0].results] == ["not_null(id)"]

        with pytest.raises(AuditFailedError, match="failed row_count"):
            third.publish(good.branch)
        assert third.audit(f"{namespace}.good", branch=good.branch).passed, "asked again, by the settings here"
        with when_reached(monkeypatch, "before-commit", lambda: other_publishes(components, tmp_path, good.branch)):
            assert third.publish(good.branch).status == "published"
    assert lake.publish_run(good.run_id).status == "published"
    assert (ids(lake, table), ids(lake, f"{namespace}.good")) == ([1], [2, 3])
    good_file = (tmp_path / "good.parquet").as_uri()
    commits = [commit for commit in lake.log() if f"{namespace}.good" in commit.tables]
    assert [uri for event in filter(None, map(event_of, commits)) for uri, _ in event.files].count(good_file) == 1


def other_publishes(components: Components, folder: Path, branch: str) -> None:
    with other_project(components, folder / "elsewhere") as elsewhere:
        assert elsewhere.publish(branch).status == "published"


def test_a_lost_journal_and_the_command_line(
    home: Path, lake: Lake, components: Components, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    bad = file(tmp_path, "bad", NULLS)
    with other_project(components, tmp_path / "lost") as first:
        rejected = first.ingest(table, bad, checks=["not_null(id)"], on_rejected="return")
    (tmp_path / "lost" / ".lakegate" / "journal.db").unlink()

    with other_project(components, tmp_path / "lost") as again:
        with pytest.raises(AuditFailedError):
            again.publish(rejected.branch)
        assert again.ingest(table, bad).status == "published", "without checks, the file is a new run's"
        with pytest.raises(AlreadyPublishedError):
            again.publish(rejected.branch, accept="once is enough")
    assert ids(lake, table) == [None, 1]

    cli = Cli(home)
    worse = lake.ingest(table, file(tmp_path, "worse", NULLS[1:]), checks=["not_null(id)"], on_rejected="return")
    refused = cli.run("publish", worse.branch)
    assert (refused.returncode, "--accept" in refused.stderr) == (1, True), refused.stderr
    assert cli.run("publish", worse.branch, "--accept", "").returncode == 2
    done = cli.run("publish", worse.branch, "--accept", "known gap")
    assert (done.returncode, "known gap" in done.stdout) == (0, True), done.stderr
    for words in (("runs", worse.run_id), ("log", "--limit", "1")):
        assert "known gap" in cli.run(*words).stdout
