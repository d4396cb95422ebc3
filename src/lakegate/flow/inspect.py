"""Inspect: what a branch holds that its target does not, read from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from lakegate.errors import InputError
from lakegate.flow.published import new_snapshots
from lakegate.flow.rooms import Rooms
from lakegate.flow.stage import staged_table
from lakegate.model.refs import Ref
from lakegate.model.run import RUN_ID_PROPERTY, StagedTable, new_run_id
from lakegate.model.tables import Snapshot


def find_staged(rooms: Rooms, branch_name: str, *, target: str = "main") -> tuple[StagedTable, ...]:
    """Return what is staged on a branch, a table each; whoever wrote it there.

    Raises:
        NotFoundError: When there is no such branch.
        InputError: When it is ``target``, changed nothing, or drops a table.
    """
    if branch_name == target:
        raise InputError(
            f"'{target}' is what everyone reads; nothing is staged there.",
            hint="`lakegate branch list` shows the branches.",
            branch=branch_name,
        )
    branch = rooms.catalog.get_ref(branch_name)
    base = find_common_ancestor(rooms, branch, rooms.catalog.get_ref(target))
    staged = staged_since(rooms, base, branch, target=target, run_id=None)
    if not staged:
        raise InputError(
            f"Branch '{branch_name}' changed no table since it left {target}.",
            hint=f"lakegate log {branch_name}",
            branch=branch_name,
        )
    return staged


def staged_since(rooms: Rooms, base: Ref, branch: Ref, *, target: str, run_id: str | None) -> tuple[StagedTable, ...]:
    """Return what ``branch`` did to each table it changed since ``base``.

    Args:
        rooms: The lake's rooms.
        base: Commit of ``target`` that the branch was made from.
        branch: The branch at its head.
        target: Branch it would be published to.
        run_id: The run that wrote it all; ``None`` to read it from the snapshots, or make a new one.

    Raises:
        InputError: When it drops a table.
    """
    changed = [difference for difference in rooms.catalog.diff(base, branch) if difference.kind == "table"]
    found = []
    for difference in changed:
        if difference.right is None:
            raise InputError(
                f"Branch '{branch.name}' drops {difference.table}; a table cannot be dropped by publishing.",
                hint=f"lakegate diff {target} {branch.name}",
                branch=branch.name,
                table=difference.table,
            )
        found.append((difference.left, difference.right, new_snapshots(rooms, difference.left, difference.right)))
    owner = run_id or _owner(snapshot for _, _, written in found for snapshot in written)
    return tuple(
        staged_table(
            owner, target=target, base=base.hash, branch=branch, before=before, pointer=pointer, written=written
        )
        for before, pointer, written in found
    )


def _owner(written: Iterable[Snapshot]) -> str:
    run_ids = {snapshot.summary.get(RUN_ID_PROPERTY) for snapshot in written}
    return (run_ids.pop() if len(run_ids) == 1 else None) or new_run_id()


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
