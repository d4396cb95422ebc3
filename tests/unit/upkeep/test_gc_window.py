"""Going back to an earlier state while gc deletes files: gc keeps whatever one may go back to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import Run
from lakegate.model.tables import StoredFile
from lakegate.upkeep.gc import gc
from lakegate.upkeep.reachable import MARGIN
from lakegate.wap.retention import require_kept
from lakegate.wap.revert import reset_branch, restore_table
from support.revert_support import A, D, House

TRIPS = TableIdentifier.parse("nyc.trips")
FOLDER = "mem://warehouse/nyc/trips_20260101T000000-00000000"
STRAY = f"{FOLDER}/data/stray"
KEEP = timedelta(days=3)


class Lake(House):
    """A lakehouse with files that go, and something that happens when the first of them are about to."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: set[str] = set()
        self.meanwhile: Callable[[], object] = lambda: None
        self.keep = KEEP

    @property
    def context(self) -> Context:
        return replace(super().context, keep=self.keep)

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        del walked
        metadata = f"{FOLDER}/metadata/{pointer.metadata_location.rpartition('/')[2]}"
        if metadata in self.deleted:
            raise NotFoundError(f"{metadata} doesn't exist.")
        yield from (f"{FOLDER}/data/{number}" for number in self.versions[pointer.metadata_location].rows)
        yield metadata

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        return [path for path in paths if path in self.deleted]

    def list(self, prefix: str) -> Iterator[StoredFile]:
        assert prefix
        names = {f"metadata/{location.rpartition('/')[2]}" for location in self.versions}
        names |= {f"data/{number}" for version in self.versions.values() for number in version.rows}
        for path in sorted((STRAY, *(f"{FOLDER}/{name}" for name in names))):
            if path not in self.deleted:
                yield StoredFile(path=path, size_bytes=1, modified_at=datetime(2026, 1, 1, tzinfo=UTC))

    def delete(self, paths: Sequence[str]) -> None:
        self.meanwhile()
        self.deleted |= set(paths)

    def collect(self, after: timedelta) -> GcReport:
        """Collect garbage some time from now."""
        span, now = timedelta(days=1), datetime.now(UTC) + after
        return gc(self.context, files=self, keep_rejected=span, grace=timedelta(0), now=now, history=KEEP)

    def restore(self, at: Ref, run: str = "y") -> Run:
        pinned = Ref(name="main", hash=at.hash, kind="detached")
        return restore_table(self.context, TRIPS, pinned, new_run_id=run)

    def is_whole(self, ref: str = "main") -> bool:
        pointer = self.pointer(ref)
        return not self.missing(list(self.reach(pointer)))


@pytest.fixture
def lake() -> Lake:
    return Lake()


@pytest.fixture
def old(lake: Lake) -> Ref:
    """A commit whose rows were replaced since."""
    lake.add("r1", A)
    then = lake.head()
    lake.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    return Ref(name="main", hash=then.hash, kind="detached")


def tag(lake: Lake, old: Ref) -> None:
    require_kept(lake.context, old)
    lake.catalog.create_tag("x", old)


WAYS: dict[str, Callable[[Lake, Ref], object]] = {
    "restore": lambda lake, old: lake.restore(old),
    "revert": lambda lake, _: lake.undo("over"),
    "reset": lambda lake, old: reset_branch(lake.context, "main", old, force=True),
    "tag": tag,
}


@pytest.mark.parametrize("way", WAYS)
def test_gc_keeps_the_state_that_somebody_goes_back_to_meanwhile(lake: Lake, old: Ref, way: str) -> None:
    """It has looked at the references, and now deletes, just before that state is beyond the limit."""
    lake.meanwhile = lambda: WAYS[way](lake, old)
    assert lake.collect(KEEP + MARGIN - timedelta(minutes=1)).files == 1
    assert lake.deleted == {STRAY}
    assert lake.is_whole()
    assert lake.is_whole("x" if way == "tag" else "main")
    assert lake.rows() == (D if way == "tag" else A)


@pytest.mark.parametrize("way", WAYS)
def test_nobody_goes_back_further_than_gc_keeps_files(lake: Lake, old: Ref, way: str) -> None:
    lake.keep = timedelta(0)
    head = lake.head()
    with pytest.raises(InputError, match=r"is too old: earlier states are kept for 0 days \(gc\.keep\)") as caught:
        WAYS[way](lake, old)
    assert "set gc.keep" in str(caught.value.hint)
    assert lake.collect(KEEP + 2 * MARGIN).files == 3
    assert (lake.head(), lake.rows(), lake.is_whole()) == (head, D, True)


@pytest.mark.parametrize("way", WAYS)
def test_a_state_whose_files_are_gone_is_refused(lake: Lake, old: Ref, way: str) -> None:
    lake.collect(KEEP + 2 * MARGIN)
    head = lake.head()
    with pytest.raises(InputError, match=r"That state of nyc.trips needs files that .*doesn't exist"):
        WAYS[way](lake, old)
    assert (lake.head(), lake.is_whole()) == (head, True)


def test_a_table_that_changed_lately_is_restored_to_a_state_of_any_age(lake: Lake, old: Ref) -> None:
    """It was current until then."""
    lake.work("other", lambda tx: tx.append("nyc.zones", [{"id": 1}]))
    assert lake.restore(old).status == "published"
    assert (lake.rows(), lake.is_whole()) == (A, True)


def test_a_tagged_commit_of_any_age_is_a_place_to_go_back_to(lake: Lake, old: Ref) -> None:
    tag(lake, old)
    lake.keep = timedelta(0)
    lake.collect(10 * KEEP)
    reset_branch(lake.context, "main", old, force=True)
    assert (lake.rows(), lake.is_whole()) == (A, True)
