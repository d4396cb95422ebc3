"""Inspect: what a branch holds that its target does not, read from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from lakegate.errors import InputError
from lakegate.flow.rooms import Rooms
from lakegate.flow.stage import staged_batch
from lakegate.model.refs import Ref, TableDifference
from lakegate.model.run import RUN_ID_PROPERTY, StagedBatch, new_run_id


def find_staged(rooms: Rooms, branch_name: str, *, target: str = "main") -> tuple[StagedBatch, ...]:
    """Return what is staged on a branch, a table each; whoever wrote it there.

    Raises:
        NotFoundError: When there is no such branch.
        InputError: When it is ``target``, changed nothing, or did more than append rows.
    """
    if branch_name == target:
        raise InputError(
            f"'{target}' is what everyone reads; nothing is staged there.",
            hint="`lakegate branch list` shows the branches.",
            branch=branch_name,
        )
    branch = rooms.catalog.get_ref(branch_name)
    base = find_common_ancestor(rooms, branch, rooms.catalog.get_ref(target))
    changed = [d for d in rooms.catalog.diff(base, branch) if d.kind == "table"]
    if not changed:
        raise InputError(
            f"Branch '{branch_name}' changed no table since it left {target}.",
            hint=f"lakegate log {branch_name}",
            branch=branch_name,
        )
    run_id = new_run_id()
    return tuple(
        _staged(rooms, difference, branch=branch, base=base, target=target, run_id=run_id) for difference in changed
    )


def find_common_ancestor(rooms: Rooms, left: Ref, right: Ref) -> Ref:
    """Return the newest commit that both histories have, as a detached reference.

    Walks both histories in step, so it costs as many commits as the longer side has since they parted.

    Raises:
        InputError: When the two have no commit in common.
    """
    seen: tuple[set[str], set[str]] = (set(), set())
    hashes = (_hashes(rooms, left), _hashes(rooms, right))
    for pair in zip_longest(*hashes):
        for side, commit in enumerate(pair):
            if commit is None:
                continue
            seen[side].add(commit)
            if commit in seen[1 - side]:
                return Ref(name=commit, hash=commit, kind="detached")
    raise InputError(f"'{left.name}' and '{right.name}' have no history in common.")


def _hashes(rooms: Rooms, ref: Ref) -> Iterator[str]:
    """Yield a reference's hashes, head first, down to the root that no commit stands on."""
    yield ref.hash
    for commit in rooms.catalog.history(ref.hash):
        if commit.parent is not None:
            yield commit.parent


def _staged(
    rooms: Rooms, difference: TableDifference, *, branch: Ref, base: Ref, target: str, run_id: str
) -> StagedBatch:
    before, pointer = difference.left, difference.right
    if pointer is None:
        raise InputError(f"Branch '{branch.name}' drops {difference.table}; only appended rows can be audited.")
    known = set() if before is None else {s.snapshot_id for s in rooms.reader.snapshots(before)}
    written = [s for s in rooms.reader.snapshots(pointer) if s.snapshot_id not in known]
    others = sorted({s.operation or "unknown" for s in written} - {"append"})
    if not written or others:
        did = f"did {', '.join(others)} on" if others else "added no rows to"
        raise InputError(
            f"Branch '{branch.name}' {did} {pointer.table}; only appended rows can be audited.",
            hint=f"lakegate diff {target} {branch.name}",
            branch=branch.name,
            table=str(pointer.table),
        )
    run_ids = {s.summary.get(RUN_ID_PROPERTY) for s in written}
    owner = run_ids.pop() if len(run_ids) == 1 else None
    return staged_batch(
        owner or run_id,
        target=target,
        base=base.hash,
        branch=branch,
        pointer=pointer,
        created=before is None,
        written=written,
    )
