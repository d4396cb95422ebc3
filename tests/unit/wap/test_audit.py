"""Which runs are batches that later ones are compared with."""

from __future__ import annotations

from lakegate.checks import parse_checks
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, ordered


def row_count(run: Run) -> CheckResult:
    return next(one for report in run.reports for one in report.results if one.check.startswith("row_count"))


def test_only_runs_that_added_rows_are_batches(house: FakeLakehouse) -> None:
    for number in range(5):
        ingest(house.context, ordered(house, run=f"r{number}"))
    # Marked as what they aren't, in the journal: the newest rewrote the table, the one before released rows.
    for run_id, changed in (("r4", {"change": "rewrite"}), ("r3", {})):
        run = house.journal.get(run_id)
        assert run is not None
        (staged,) = run.staged
        own = staged.model_copy(update=changed)
        aside = staged.model_copy(update={"table": TableIdentifier.parse(f"{TRIPS}__quarantine")})
        is_release = run_id == "r3"
        kept: dict[str, object] = {"kind": "transaction", "staged": (own, aside)} if is_release else {"staged": (own,)}
        house.journal.save(run.model_copy(update=kept))
    checks = [str(check) for check in parse_checks("row_count(percent=10)")]
    sixth = row_count(ingest(house.context, ordered(house, run="r6", checks=checks)))
    assert (sixth.verdict, sixth.detail) == (
        "skipped", "It needs 5 earlier batches to compare with; the journal has 3."
    )  # fmt: skip
    ingest(house.context, ordered(house, run="r7"))
    last = row_count(ingest(house.context, ordered(house, [*CLEAN, *CLEAN], run="r8", checks=checks)))
    assert last.verdict == "fail"
