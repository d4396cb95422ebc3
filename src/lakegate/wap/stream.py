"""Streams: a branch that its writer never stops writing to, published slice by slice.

A slice is what was committed to the stream's branch since the last one. It's rebased onto a branch of its own, made
from the target, and audited and published there like any run; the stream's branch goes on and never changes. The commit
says up to where the stream is published: that's its mark, and the next slice begins there. A slice's run id is made of
the stream and of the mark that it begins at, so no two slices that begin at one mark are published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from lakegate.context import Context
from lakegate.errors import AuditFailedError, InputError, NotReplayableError
from lakegate.ledger.event import event_of
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, Slice, StagedTable
from lakegate.wap import failpoints
from lakegate.wap.audit import ConfiguredChecks
from lakegate.wap.discard import discard
from lakegate.wap.opening import checks_of, closed, make_stream
from lakegate.wap.recover import recover, running
from lakegate.wap.session import RunSession
from lakegate.wap.stage import namespaces_for, staged_since
from lakegate.wap.written import audit_written, publish_written, stage_written


class StreamStoppedError(AuditFailedError):
    """A slice of the stream failed its audit. Nothing later is published until somebody decides what becomes of it."""


class StreamRefusedError(InputError):
    """Something was done on a stream's branch that can't be published while the writer goes on."""

    code = "stream-refused"


def publish_slice(context: Context, opening_id: str, configured: ConfiguredChecks, *, prefix: str) -> Run | None:
    """Audit what was written to a stream since its mark, and publish it as a run of its own.

    Args:
        configured: Returns the checks of a table's contract and settings.
        prefix: Folder of the slice's branch.

    Returns:
        The slice's run, ``published`` or ``rejected``; ``None`` if nothing was written.

    Raises:
        ClosedError: When the opening has ended and all that was written to it is published.
        StreamStoppedError: When an earlier slice failed its audit, and nobody has decided yet.
        StreamRefusedError: When more was done than rows appended.
        NotFoundError: When there's no such opening.
        RetryableError: When another process is publishing the slice.
    """
    recover(context)
    stream = _stream(context, opening_id)
    base = sync(context, stream.target)
    part = _next_slice(context, stream, base, context.catalog.get_ref(stream.branch).hash)
    changes = context.catalog.diff(Ref.detached(part.since), Ref.detached(part.until))
    if not any(one.kind == "table" for one in changes):
        if stream.finished_at is not None:
            raise closed(stream)
        return None
    run_id = _slice_id(context, stream, part.since)
    run = Run(
        run_id=run_id,
        kind="gate",
        name=stream.name or stream.branch,
        tables=(),
        branch=f"{prefix}/{stream.branch}_{run_id}",
        status="created",
        started_at=datetime.now(UTC),
        target=stream.target,
        base=base.hash,
        checks=stream.checks,
        slice=part,
    )
    known = context.journal.get(run_id)
    with running(context, run, anew=known is None or known.status != "discarded") as session:
        _stage(context, session, configured)
        audit_written(context, session)
        publish_written(context, session)
    return session.run


def _stream(context: Context, opening_id: str) -> Run:
    """Return the stream's opening. What was written until its deadline is published after that, too."""
    known = context.journal.get(opening_id)
    if known is not None and known.status == "failed" and known.opening is not None and known.opening.is_stream:
        return known
    return make_stream(context, opening_id)


def _next_slice(context: Context, stream: Run, base: Ref, head: str) -> Slice:
    """Return what follows the last slice that was published, or that somebody left out.

    Raises:
        StreamStoppedError: When that was rejected, and nobody has decided yet.
        StreamRefusedError: When that was refused, or when the target has lost it.
    """
    mark = _mark(context, stream, base)
    while (known := context.journal.get(_slice_id(context, stream, mark))) is not None:
        _require_undecided(stream, known)
        if known.slice is None or not (known.status == "skipped" or (known.status == "discarded" and known.failures)):
            break
        mark = known.slice.until
    return Slice(stream=stream.run_id, branch=stream.branch, since=mark, until=head)


def _mark(context: Context, stream: Run, base: Ref) -> str:
    """Return the commit of the stream up to which it's published, as the target's history says."""
    if stream.base is None:
        raise AssertionError("an opening has a base")
    for commit in context.catalog.history(base.hash, until=stream.base):
        event = event_of(commit)
        if event is not None and event.slice is not None and event.slice.stream == stream.run_id:
            return event.slice.until
    return stream.base


def _slice_id(context: Context, stream: Run, mark: str) -> str:
    """Return the run id of the slice of a stream that begins at a commit."""
    at = next((commit.time for commit in context.catalog.history(mark)), stream.started_at)
    digits = hashlib.sha256(f"{stream.run_id} {mark}".encode()).hexdigest()[:8]
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%S}-{digits}"


def _require_undecided(stream: Run, known: Run) -> None:
    """Raise if an earlier attempt at a slice ended in a way that trying again doesn't change."""
    if known.status == "rejected":
        failed = ", ".join(f"{report.table}: {result.name}" for report in known.reports for result in report.failures)
        raise StreamStoppedError(
            f"Stream {stream.branch} waits: run {known.run_id} isn't published; {failed} failed. Nothing that was "
            "written after it is published before somebody decides.",
            hint=f'To publish it anyway: lakegate publish {known.branch} --accept "REASON". To leave its rows out: '
            f"lakegate discard {known.branch}",
            branch=known.branch,
            run_id=known.run_id,
        )
    if known.status == "failed" and known.error is not None and known.error.code == StreamRefusedError.code:
        raise StreamRefusedError(known.error.message, hint=known.error.hint, **known.error.context)
    if known.status == "discarded" and known.error is None and (known.accepted is not None or not known.failures):
        reason = f"run {known.run_id}, a slice of it, isn't in {known.target} any more."
        raise _refused(stream.branch, known.run_id, reason)


def _stage(context: Context, session: RunSession, configured: ConfiguredChecks) -> None:
    """Put the slice on a branch of its own, on top of the target."""
    run = session.run
    discard(context, run.branch)  # what a process that died has left there
    failpoints.reach("before-stage")
    base = Ref.detached(run.base or "")
    puts = _appended(context, run, base)
    branch = context.catalog.create_branch(run.branch, Ref(name=run.target, hash=base.hash))
    failpoints.reach("after-branch")
    context.catalog.commit(
        CommitRequest(
            branch=branch.name,
            base=branch.hash,
            message=f"Run {run.run_id}: written to {_slice_of(run).branch}",
            puts=tuple(puts),
            namespaces=namespaces_for(context, puts, branch),
            properties={RUN_ID_PROPERTY: run.run_id},
        )
    )
    stage_written(
        context,
        session,
        base,
        lambda table: checks_of(run, table, configured),
        reads=(),
        require=lambda _: None,
        nothing=f"Nothing was written to {_slice_of(run).branch}.",
        by_anyone=True,
    )


def _appended(context: Context, run: Run, base: Ref) -> Sequence[TablePointer]:
    """Return the target's tables at ``base`` with the rows that the slice appended."""
    part = _slice_of(run)
    name = part.branch
    try:
        at, since = Ref(name=name, hash=part.until), Ref.detached(part.since)
        found = staged_since(context, since, at, target=run.target, run_id=run.run_id, by_anyone=True)
        for one in found:
            if not one.only_adds:
                raise _refused(name, run.run_id, f"{one.table} wasn't only appended to: {one.reason or 'it changed'}.")
        now = context.catalog.get_tables([one.table for one in found], base)
        return [_onto(context, one, now[one.table], run) for one in found]
    except StreamRefusedError:
        raise
    except (InputError, NotReplayableError) as error:
        raise _refused(name, run.run_id, error.message) from error


def _onto(context: Context, one: StagedTable, now: TablePointer | None, run: Run) -> TablePointer:
    if now is not None:
        return context.editor.rebase(one.pointer, one.snapshot_ids, now)
    if one.before is None:
        return one.pointer.model_copy(update={"content_id": None})
    if not _was_left_out(context, one.table, run):
        raise _refused(_slice_of(run).branch, run.run_id, f"{one.table} isn't on {run.target}.")
    empty = context.editor.without_rows(one.pointer).model_copy(update={"content_id": None})
    return context.editor.rebase(one.pointer, one.snapshot_ids, empty)


def _was_left_out(context: Context, table: TableIdentifier, run: Run) -> bool:
    """Return whether a table was created on the stream, by a slice that somebody left out."""
    stream = context.journal.get(_slice_of(run).stream)
    if stream is None or run.base is None:
        return False
    published = Ref.detached(_mark(context, stream, Ref.detached(run.base)))
    return context.catalog.get_tables([table], published)[table] is None


def _slice_of(run: Run) -> Slice:
    if run.slice is None:
        raise AssertionError("it's the run of a slice")
    return run.slice


def _refused(branch: str, run_id: str, reason: str) -> StreamRefusedError:
    return StreamRefusedError(
        f"Stream {branch} can't go on: {reason} A stream may only append rows and create tables. What was published "
        "before stays; nothing later is published.",
        hint=f"Stop its writer, end the stream with lakegate discard {branch}, open it again with lakegate gate open "
        f"--branch {branch}, and let the writer write again what isn't published. Rows are changed, and tables "
        f"altered or compacted, on other branches or on main.",
        branch=branch,
        run_id=run_id,
    )
