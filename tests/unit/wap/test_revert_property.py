"""Publishes and reverts in any order leave the same rows as the runs in effect would have alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import NotRevertableError
from lakegate.model.run import UndoneTable
from support.examples import examples
from support.revert_support import House

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.just(0)),
        st.tuples(st.just("overwrite"), st.just(0)),
        st.tuples(st.just("revert"), st.integers(0, 12)),
    ),
    max_size=12,
)


class Model:
    """What each run did to the table, and which ones are reverted; a table is what the others make of it, in order."""

    def __init__(self) -> None:
        self.house = House()
        self.runs: list[tuple[str, str]] = []
        self.reverts: dict[str, tuple[str, ...]] = {}
        self.there: list[int] = []

    def reverted(self) -> set[str]:
        return {run for reverts in self.reverts.values() for run in reverts}

    def rows(self) -> list[int]:
        found: list[int] = []
        reverted = self.reverted()
        for number, (kind, run) in enumerate(self.runs):
            if run not in reverted:
                found = [*([] if kind == "overwrite" else found), number]
        return found

    def write(self, kind: str) -> None:
        number = len(self.runs)
        run, rows = f"r{number}", [{"id": number, "passengers": 1}]
        if kind == "add":
            self.house.add(run, rows)
        else:
            self.house.work(run, lambda tx: tx.overwrite("nyc.trips", rows))
        self.runs.append((kind, run))

    def revert(self, at: int) -> None:
        reverted = self.reverted()
        effective = [run for _, run in self.runs if run not in reverted]
        if not effective:
            return
        chosen, new = effective[at % len(effective)], f"x{len(self.reverts)}"
        try:
            done = self.house.undo(chosen, new=new)
        except NotRevertableError:
            # The newest one can always be reverted.
            assert chosen != effective[-1]
            return
        before = len(self.there)
        self.reverts[new] = done.reverts
        assert done.reverts == (chosen,)
        change = len(self.rows()) - before
        dropped = done.undone[0].dropped
        assert done.undone == (UndoneTable(table="nyc.trips", rows=change, data_files=change, dropped=dropped),)

    def check(self) -> None:
        self.there = [row["id"] for row in self.house.rows()]
        assert self.there == self.rows()


@settings(max_examples=examples(10, 100))
@given(_STEPS)
def test_reverts_leave_the_rows_of_the_other_runs(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.check()
    for kind, number in steps:
        if kind == "revert":
            model.revert(number)
        else:
            model.write(kind)
        model.check()
    reverted = model.reverted()
    for run in model.reverts:
        assert model.house.status(run)[0] == "published"
    for number, (kind, run) in enumerate(model.runs):
        assert model.house.status(run)[0] == ("reverted" if run in reverted else "published")
        if kind == "add":
            again = model.house.add(f"again-{run}", [{"id": number, "passengers": 1}], file=run)
            assert again.status == ("published" if run in reverted else "skipped")
