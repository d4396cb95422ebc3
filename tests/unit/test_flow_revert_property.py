"""Any publishes and reverts in any order leave what the runs that stand would have left alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import NotRevertableError
from lakegate.model.run import UndoneTable
from undo_support import House

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.just(0)),
        st.tuples(st.just("overwrite"), st.just(0)),
        st.tuples(st.just("revert"), st.integers(0, 12)),
        st.tuples(st.just("cascade"), st.integers(0, 12)),
    ),
    max_size=12,
)


class Model:
    """What each run did to the table, and which ones stand; a table is what they make of it, one after the other."""

    def __init__(self) -> None:
        self.house = House()
        self.runs: list[tuple[str, str]] = []
        self.undone: set[str] = set()
        self.there: list[int] = []

    def rows(self) -> list[int]:
        found: list[int] = []
        for number, (kind, run) in enumerate(self.runs):
            if run not in self.undone:
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

    def undo(self, at: int, *, cascade: bool) -> None:
        standing = [run for _, run in self.runs if run not in self.undone]
        if not standing:
            return
        new = f"x{len(self.undone)}"
        try:
            done = self.house.undo(standing[at % len(standing)], new=new, cascade=cascade)
        except NotRevertableError as error:
            assert not cascade or "undid runs itself" in error.message  # noqa: PT017 - most are not
            return
        before = len(self.there)
        self.undone.update(done.reverts)
        assert len(done.reverts) == 1 or cascade
        change = len(self.rows()) - before
        dropped = done.undone[0].dropped
        assert done.undone == (UndoneTable(table="nyc.trips", rows=change, data_files=change, dropped=dropped),)

    def check(self) -> None:
        self.there = [row["id"] for row in self.house.rows()]
        assert self.there == self.rows()


@settings(max_examples=100)
@given(_STEPS)
def test_reverts_leave_what_the_other_runs_would_have_left(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.check()
    for kind, number in steps:
        if kind in ("revert", "cascade"):
            model.undo(number, cascade=kind == "cascade")
        else:
            model.write(kind)
        model.check()
    for number, (kind, run) in enumerate(model.runs):
        assert model.house.status(run)[0] == ("reverted" if run in model.undone else "published")
        if kind == "add":
            again = model.house.add(f"again-{run}", [{"id": number, "passengers": 1}], file=run)
            assert again.status == ("published" if run in model.undone else "skipped")
