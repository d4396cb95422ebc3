"""Claims: which of a batch's files are this run's to publish, so that each version of a file is published once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lakegate.errors import InputError, RetryableError
from lakegate.flow.deadline import NEVER, Deadline
from lakegate.flow.history import FILES_PROPERTY, decode_files
from lakegate.flow.published import find_commit
from lakegate.flow.recover import recover
from lakegate.flow.rooms import Rooms
from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim
from lakegate.model.order import IngestOrder
from lakegate.model.refs import Ref
from lakegate.model.run import KnownFile

_POLL_S = 0.1
_RECOVER_EVERY = 10


@dataclass(frozen=True, slots=True)
class Share:
    """What of a batch is this run's.

    Attributes:
        files: The files to ingest; none when all are published or somebody else's.
        skipped: The others, and whose they are.
        busy: Whether some of those are not published yet, but left to a run that is at them.
        replaces: Runs whose rows in the table go when this batch is published.
    """

    files: tuple[SourceFile, ...]
    skipped: tuple[KnownFile, ...]
    busy: bool = False
    replaces: tuple[str, ...] = ()


def claim_files(rooms: Rooms, order: IngestOrder, base: Ref, deadline: Deadline = NEVER) -> Share:
    """Claim the order's files; wait for a run that is at one of them, or leave that one to it.

    Args:
        rooms: The lake's rooms.
        order: What is wanted.
        base: The commit of the target that the run starts from.
        deadline: When to stop waiting at the latest.

    Raises:
        InputError: When a file's path was published with other content, and the order does not say what to do then.
        RetryableError: When the other run took longer than ``order.wait_s``, or than there is time.
    """
    claim = _claim(rooms, order)
    if claim.busy and order.on_busy == "wait":
        claim = _wait(rooms, order, claim, deadline)
    if claim.changed:
        raise _changed(order, claim.changed)
    files, replaces = _with_replaced(rooms, order, claim, base)
    skipped = tuple(known for known in (*claim.published, *claim.busy) if known.file.uri not in {f.uri for f in files})
    return Share(files, skipped, bool(claim.busy), replaces)


def _claim(rooms: Rooms, order: IngestOrder) -> Claim:
    return rooms.journal.claim(
        order.run_id,
        str(order.table),
        order.batch.files,
        take_changed=order.on_changed != "refuse",
        take_free=order.on_busy == "skip",
    )


def _wait(rooms: Rooms, order: IngestOrder, claim: Claim, deadline: Deadline) -> Claim:
    other = claim.busy[0]
    began = time.monotonic()
    until = min(began + order.wait_s, deadline.at)
    polls = 0
    with rooms.narrator.step(f"Waiting for run {other.run_id}, which is at {other.file.uri}"):
        while claim.busy:
            if time.monotonic() > until:
                raise RetryableError(
                    f"Run {other.run_id} is still at {other.file.uri} after {time.monotonic() - began:,.0f} s.",
                    hint=f"lakegate runs {other.run_id}",
                    table=str(order.table),
                    file=other.file.uri,
                    other_run_id=other.run_id,
                )
            time.sleep(_POLL_S)
            polls += 1
            if polls % _RECOVER_EVERY == 0:
                recover(rooms, deadline)
            claim = _claim(rooms, order)
    return claim


def _changed(order: IngestOrder, changed: Sequence[KnownFile]) -> InputError:
    first = changed[0]
    others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    return InputError(
        f"{first.file.uri}{others} was published to {order.table} by run {first.run_id} with other content.",
        hint="Say what to do: --on-changed append adds its rows to the old ones, --on-changed replace puts them in "
        "their place; or undo the old publish: "
        f"lakegate revert {first.run_id}",
        table=str(order.table),
        file=first.file.uri,
        files=[known.file.uri for known in changed],
        other_run_id=first.run_id,
    )


def _with_replaced(
    rooms: Rooms, order: IngestOrder, claim: Claim, base: Ref
) -> tuple[tuple[SourceFile, ...], tuple[str, ...]]:
    """Return the files to write and the runs they replace, when files are published anew with other content."""
    if order.on_changed != "replace":
        return claim.claimed, ()
    known = rooms.journal.earlier(str(order.table), claim.claimed)
    replaces = tuple(dict.fromkeys(one.run_id for one in known))
    given = {file.uri: file for file in order.batch.files}
    again: list[SourceFile] = []
    for run_id in replaces:
        published = {
            uri for uri, _ in decode_files(find_commit(rooms, run_id, base).properties.get(FILES_PROPERTY, ""))
        }
        missing = sorted(published - given.keys())
        if missing:
            raise _not_alone(order, run_id, missing)
        again += [given[uri] for uri in sorted(published)]
    files = {file.uri: file for file in (*claim.claimed, *again)}
    return tuple(file for file in order.batch.files if file.uri in files), replaces


def _not_alone(order: IngestOrder, run_id: str, missing: Sequence[str]) -> InputError:
    return InputError(
        f"Run {run_id} published files of this batch to {order.table} together with {len(missing)} other(s), such as "
        f"{missing[0]}; their rows cannot be told apart.",
        hint=f"Ingest all files of that run together with --on-changed replace; see them with: lakegate runs {run_id}",
        table=str(order.table),
        other_run_id=run_id,
        files=list(missing),
    )
