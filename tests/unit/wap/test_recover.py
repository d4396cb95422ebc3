"""Recovery, when something goes wrong while it works."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.errors import RetryableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run
from lakegate.wap import failpoints, reachable
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from lakegate.wap.revert import restore_table
from support.flow_support import ordered
from support.revert_support import House


class DiedError(BaseException):
    """The process ends here."""


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "passengers": 1}]


def test_a_journal_that_goes_away_meanwhile_costs_no_run_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.add("z", rows(9))

    def die(point: str) -> None:
        if point == "before-publish":
            raise DiedError

    with monkeypatch.context() as patched, pytest.raises(DiedError):
        patched.setattr(failpoints, "reach", die)
        ingest(house.context, ordered(house, rows(1), run="a", checks=("unique(id, scope='table')",)))
    house.kill()
    save = house.journal.save
    refused: list[Run] = []

    def away_once(run: Run, *arguments: Any, **options: Any) -> Any:
        if run.run_id == "a" and run.reports and not refused:
            refused.append(run)
            raise RetryableError("The journal isn't available.")
        return save(run, *arguments, **options)

    monkeypatch.setattr(house.journal, "save", away_once)
    with pytest.raises(RetryableError):
        recover(house.context)
    house.kill()
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("a", "published")]
    assert refused
    assert sorted(row["id"] for row in house.rows()) == [1, 9]


def test_what_a_killed_revert_announced_is_dropped_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.add("z", rows(9))
    house.add("a", rows(1))
    monkeypatch.setattr(reachable, "_announcement", lambda prefix, name: f"{prefix}{name}.{'0' * 16}.1.2")

    commit = house.catalog.commit

    def die(request: CommitRequest) -> Ref:
        if request.branch == "main":
            raise DiedError
        return commit(request)

    with monkeypatch.context() as patched, pytest.raises(DiedError):
        patched.setattr(house.catalog, "commit", die)
        patched.setattr(house.catalog, "delete_ref", lambda _: None)  # nor does it take anything back
        house.undo("a", new="x")
    others = "wap/lakegate.needed/y.0badcafe.0000000000000000.1.2"
    house.catalog.create_branch(others, house.catalog.get_ref("main"))
    house.kill()
    assert len(list(house.catalog.list_refs())) == 3
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("x", "failed")]
    assert [ref.name for ref in house.catalog.list_refs()] == ["main", others]


def test_a_run_of_two_tables_stays_reverted_when_one_is_restored() -> None:
    house = House()

    def both(number: int) -> Any:
        def write(tx: Any) -> None:
            tx.append("nyc.t1", rows(number))
            tx.append("nyc.t2", rows(number))

        return write

    house.work("a", both(1))
    house.work("b", both(2))
    at = house.catalog.get_ref("main")
    house.undo("b", new="x")
    restore_table(house.context, TableIdentifier.parse("nyc.t1"), at, new_run_id="restore")
    assert house.status("b") == ("reverted", "x")
