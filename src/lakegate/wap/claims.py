"""Claims: reserve a batch's files for one run, so that each version of a file is published once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from lakegate.context import Context
from lakegate.errors import ConflictError, InputError, NotFoundError, RetryableError
from lakegate.ledger.event import Event
from lakegate.ledger.publication import find_event, published_to
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import Ref
from lakegate.model.request import IngestRequest
from lakegate.telemetry.metrics import WAIT_SECONDS, measure
from lakegate.wap.deadline import NEVER, Deadline
from lakegate.wap.publish_lock import give_up_publish_locks
from lakegate.wap.recover import recover

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal

_POLL_S = 0.1
_RECOVER_EVERY = 10


@dataclass(frozen=True, slots=True)
class ClaimedFiles:
    """The files of a batch that this run claimed.

    Attributes:
        files: The files to ingest; empty if all are published or claimed by other runs.
        skipped: The other files, and the runs that have them.
        busy: Whether some of ``skipped`` aren't published yet, because another run is working on them.
        replaces: Runs whose rows this batch replaces when it is published.
        again: URIs of those of ``files`` that other runs published before; they stay those runs' files.
    """

    files: tuple[SourceFile, ...]
    skipped: tuple[KnownFile, ...]
    busy: bool = False
    replaces: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


def new_files(journal: Journal, request: IngestRequest) -> tuple[SourceFile, ...]:
    """Return the files that the run may have to read: an append skips those that are published already."""
    files = request.batch.files
    if not request.mode.appends or request.on_changed == "replace":
        return files
    published = {known.file.uri for known in journal.known(str(request.table), files).published}
    return tuple(file for file in files if file.uri not in published)


def claim_files(context: Context, request: IngestRequest, token: str, deadline: Deadline = NEVER) -> ClaimedFiles:
    """Claim the request's files. If another run is working on one, wait for that run or skip the file.

    Raises:
        ConflictError: When a run whose rows this one replaces published them after the request's base; or when a file
            that was published when the request was planned isn't any more.
        InputError: When a file's path was published with other content, and the request doesn't say what to do about
            it; or when the mode needs all files and one would be left out.
        RetryableError: When the other run took longer than ``request.wait_s`` or the deadline allows; or when the mode
            needs all files and another run is working on one.
    """
    claim = _claim(context, request, token)
    if claim.busy and request.on_busy == "wait":
        claim = _wait(context, request, claim, token, deadline)
    claim = _with_changed_back(request, claim)
    if claim.changed:
        raise _changed_error(request, claim.changed)
    files, replaces = _with_replaced(context, request, claim)
    if any(file.uri in request.unread for file in files):
        raise ConflictError(
            "A run whose files this one skips was reverted meanwhile. Nothing was written.",
            hint="Run it again.",
            table=str(request.table),
            run_id=request.run_id,
        )
    again: tuple[str, ...] = ()
    if files and request.mode.needs_all_files:
        files, again = _all_files(request, claim)
    skipped = tuple(known for known in (*claim.published, *claim.busy) if known.file.uri not in {f.uri for f in files})
    return ClaimedFiles(files, skipped, bool(claim.busy), replaces, again)


def published_already(context: Context, request: IngestRequest) -> ClaimedFiles | None:
    """Return what a request for files that are all published would claim, which is nothing; ``None`` if one isn't."""
    known = context.journal.known(str(request.table), request.batch.files)
    published = (known if request.mode.appends else known.with_changed_back()).published
    if len(published) < len(request.batch.files) or any(one.run_id == request.run_id for one in published):
        return None
    return ClaimedFiles((), published)


def _claim(context: Context, request: IngestRequest, token: str) -> Claim:
    return context.journal.claim(
        request.run_id,
        str(request.table),
        request.batch.files,
        token=token,
        take_changed=request.on_changed != "refuse",
        take_free=request.on_busy == "skip",
    )


def _with_changed_back(request: IngestRequest, claim: Claim) -> Claim:
    """Also claim files that went back to an earlier version, if the mode may write them again.

    This doesn't stop another run from doing the same. Such runs read their table, so the catalog accepts one of the
    two, and the other finds the file published.
    """
    if not claim.went_back or request.mode.appends:
        return claim
    found = claim.with_changed_back()
    if request.on_changed == "refuse":
        return found
    uris = {*(file.uri for file in claim.claimed), *(known.file.uri for known in claim.went_back)}
    claimed = tuple(file for file in request.batch.files if file.uri in uris)
    return found.model_copy(update={"claimed": claimed, "changed": ()})


def _wait(context: Context, request: IngestRequest, claim: Claim, token: str, deadline: Deadline) -> Claim:
    """Wait for the other runs that are working on files of the batch, one after the other; then claim the rest.

    Raises:
        RetryableError: When that takes longer than ``request.wait_s`` or the deadline allows.
    """
    give_up_publish_locks()  # the other run may be waiting for them
    began, polls = time.monotonic(), 0
    first = claim.busy[0]
    with context.narrator.step(f"Waiting for run {first.run_id}, which is working on {first.file.uri}"):
        while claim.busy:
            other = claim.busy[0]
            if time.monotonic() > min(began + request.wait_s, deadline.at):
                raise RetryableError(
                    f"Run {other.run_id} is still working on {other.file.uri} after {time.monotonic() - began:,.0f} s.",
                    hint=f"lakegate runs {other.run_id}",
                    table=str(request.table),
                    file=other.file.uri,
                    other_run_id=other.run_id,
                )
            time.sleep(_POLL_S)
            polls += 1
            if polls % _RECOVER_EVERY == 0:
                recover(context, deadline)
            claim = _claim(context, request, token)
    measure(WAIT_SECONDS, time.monotonic() - began, queue="files")
    return claim


def _more(files: Sequence[KnownFile]) -> str:
    """Return how many more there are than the first, in parentheses."""
    return f" (and {len(files) - 1:,} more)" if len(files) > 1 else ""


def _changed_error(request: IngestRequest, changed: Sequence[KnownFile]) -> InputError:
    first = changed[0]
    return InputError(
        f"{first.file.uri}{_more(changed)} was published to {request.table} by run {first.run_id} with other content.",
        hint="Choose: --on-changed append adds its rows to the old ones, --on-changed replace replaces the old ones. "
        f"Or revert the old publish: lakegate revert {first.run_id}"
        if request.mode.appends
        else f"Leave out --on-changed: mode {request.mode.name} then writes what the file contains now.",
        table=str(request.table),
        file=first.file.uri,
        files=[known.file.uri for known in changed],
        other_run_id=first.run_id,
    )


def _with_replaced(
    context: Context, request: IngestRequest, claim: Claim
) -> tuple[tuple[SourceFile, ...], tuple[str, ...]]:
    """Return the files to write, and the runs they replace: those that published other content of the same paths."""
    if request.on_changed != "replace":
        return claim.claimed, ()
    known = context.journal.earlier(str(request.table), claim.claimed)
    replaces = tuple(dict.fromkeys(one.run_id for one in known))
    base = Ref(name=request.target, hash=request.base)
    given = {file.uri: file for file in request.batch.files}
    again: list[SourceFile] = []
    state = context.catalog.get_table(request.table, base) if replaces else None
    live = frozenset[str]() if state is None else frozenset(file.path for file in context.reader.files(state))
    for run_id in replaces:
        event = _find_replaced(context, request, run_id, base)
        _require_replaceable(context, request, event, live)
        again += [given[uri] for uri in sorted({uri for uri, _ in event.files})]
    files = {file.uri: file for file in (*claim.claimed, *again)}
    return tuple(file for file in request.batch.files if file.uri in files), replaces


def _find_replaced(context: Context, request: IngestRequest, run_id: str, base: Ref) -> Event:
    try:
        return find_event(context, run_id, base)
    except NotFoundError as error:
        # For instance, we waited for that run to publish. Its rows can only be replaced on a base that has them.
        raise ConflictError(
            f"Run {run_id} published files of this batch to {request.table} with other content after this run had "
            "started. Nothing was written.",
            hint="Run it again.",
            table=str(request.table),
            run_id=request.run_id,
            other_run_id=run_id,
        ) from error


def _all_files(request: IngestRequest, claim: Claim) -> tuple[tuple[SourceFile, ...], tuple[str, ...]]:
    """Return all files of a batch whose mode removes rows that aren't in it, and the URIs that other runs published."""
    if claim.busy:
        other = claim.busy[0]
        raise RetryableError(
            f"Run {other.run_id} is working on {other.file.uri}, and mode {request.mode.name} needs every file of the "
            "batch. Nothing was written.",
            hint=f"Run it again when that run has ended: lakegate runs {other.run_id}",
            table=str(request.table),
            file=other.file.uri,
            other_run_id=other.run_id,
        )
    claimed = {file.uri for file in claim.claimed}
    files = request.batch.files
    return files, tuple(file.uri for file in files if file.uri not in claimed)


def _require_replaceable(context: Context, request: IngestRequest, event: Event, live: frozenset[str]) -> None:
    """Check that exactly the rows of the batch's files can be removed from what a run published.

    Args:
        event: What the run's commit says.
        live: Paths of the table's data files.
    """
    run_id = event.run

    def refuse(problem: str, hint: str, **found: Any) -> NoReturn:
        said = f"Run {run_id} published files of this batch to {request.table} {problem}"
        raise InputError(said, hint=hint, table=str(request.table), other_run_id=run_id, **found)

    revert = f"lakegate revert {run_id}"
    if event.mode:  # its data files also hold other runs' rows: a rewritten file contains every row that didn't change
        refuse(
            f"with other content, in mode {event.mode}. --on-changed replace can't tell its rows from those of other "
            "runs.",
            f"Revert that run, then ingest the files again: {revert} --dry-run. Or ingest them in that mode.",
        )
    if any(map(is_quarantine, event.tables)):  # only a revert knows which runs have released some of these rows
        refuse(
            "with other content, and quarantined some of their rows. --on-changed replace can't remove quarantined "
            "rows, or rows that have since been released from quarantine.",
            f"Revert that run, then ingest the files again: {revert}. If some of its rows were released or dropped "
            "since, revert that first.",
        )
    base = Ref(name=request.target, hash=request.base)
    if not published_to(context, run_id, base, request.table) <= live:
        refuse(
            "with other content, but its data files have since been rewritten, for example by 'lakegate table "
            "optimize'. --on-changed replace can't remove its rows.",
            f"Revert the run that rewrote its files, then this one, and ingest again: {revert}",
        )
    missing = sorted({uri for uri, _ in event.files} - {file.uri for file in request.batch.files})
    if missing:
        refuse(
            f"together with {len(missing)} other(s), such as {missing[0]}. Their rows can't be told apart.",
            f"Ingest all files of that run together with --on-changed replace. To list them: lakegate runs {run_id}",
            files=missing,
        )
