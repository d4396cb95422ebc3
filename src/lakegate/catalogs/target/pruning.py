"""What the overlay may forget: commits that no branch or tag reaches, and states that nobody goes back to.

All commits of ``main`` stay, with what they changed: they say what is published. But the state of all keys, which every
64th of them has, is only needed for commits that can be read: those since ``gc.keep``, and those that branches and tags
are at or began from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select, update

from lakegate.catalogs.target.log import FULL_STATE_EVERY
from lakegate.catalogs.target.schema import COMMITS, REFS
from lakegate.journal.database import JournalTransaction
from lakegate.model.refs import MAIN


class _Node(NamedTuple):
    hash: str
    parent: str
    number: int
    time: datetime
    has_state: bool


def unreachable(tx: JournalTransaction, before: datetime, dropped: Collection[str] = ()) -> list[str]:
    """Return the commits from before ``before`` that no branch or tag reaches, without those ``dropped``."""
    nodes, reached = _nodes(tx), set[str]()
    for head in tx.scalars(select(REFS.c.hash).where(REFS.c.name.not_in(dropped))):
        for node in _line(nodes, head):
            if node.hash in reached:
                break
            reached.add(node.hash)
    return [node.hash for node in nodes.values() if node.hash not in reached and node.time < before]


def prune(tx: JournalTransaction, before: datetime) -> None:
    """Forget what nobody has needed since ``before``."""
    tx.delete(COMMITS.c.hash, unreachable(tx, before))
    nodes = _nodes(tx)
    heads = {row.name: row.hash for row in tx.execute(select(REFS))}
    main = {node.hash: node for node in _line(nodes, heads[MAIN])}
    readable = [node for node in main.values() if node.time >= before]
    readable += [node for node in main.values() if node.time < before][:1]  # what was current then
    for name, head in heads.items():
        own = [] if name == MAIN else list(_line(nodes, head))
        readable += own[:1]
        readable += [node for node in own if node.hash in main][:1]  # where it began
    kept = {full.hash for node in readable if (full := _full_state(nodes, node)) is not None}
    old = [node.hash for node in nodes.values() if node.has_state and node.hash not in kept and node.time < before]
    for commit in old:
        tx.execute(update(COMMITS).where(COMMITS.c.hash == commit).values(state=None))


def _nodes(tx: JournalTransaction) -> Mapping[str, _Node]:
    read = select(COMMITS.c.hash, COMMITS.c.parent, COMMITS.c.number, COMMITS.c.time, COMMITS.c.state.is_not(None))
    rows = tx.execute(read).all()
    return {name: _Node(name, parent, n, datetime.fromisoformat(time), full) for name, parent, n, time, full in rows}


def _line(nodes: Mapping[str, _Node], commit: str) -> Iterator[_Node]:
    """Yield a commit and those before it, newest first."""
    node = nodes.get(commit)
    while node is not None:
        yield node
        node = nodes.get(node.parent)


def _full_state(nodes: Mapping[str, _Node], node: _Node) -> _Node | None:
    """Return the commit from whose full state that of ``node`` is read, if it isn't from the root."""
    number = node.number - node.number % FULL_STATE_EVERY
    return next((one for one in _line(nodes, node.hash) if one.number == number), None)
