"""The state machine proof: histories at random, against the model, with everything going wrong that can.

Each history is a list of operations, some of which are interrupted: killed, put to sleep, cut off from the catalog or
the journal, or made to wait while others work. After each operation the model checks all commits of the target
(P1 to P5, P9), at the end also what is left behind (P6, P8); a run that nothing went wrong for must publish (P7).
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from sqlalchemy import select

from lakegate.checks import parse_checks
from lakegate.errors import (
    CheckError,
    InputError,
    LakegateError,
    NotFoundError,
    NotRevertableError,
    RetryableError,
)
from lakegate.journal.files import CLAIMED, PUBLISHED
from lakegate.journal.journal import Journal
from lakegate.journal.schema import CLAIMS, LEASES
from lakegate.ledger.sync import sync
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run
from lakegate.ports import Catalog
from lakegate.testing import MemoryCatalog
from lakegate.upkeep.gc import gc
from lakegate.wap import commit_loop, failpoints, review
from lakegate.wap.ingest import ingest
from lakegate.wap.opening import Order, open_branch, opened, seal
from lakegate.wap.recover import recover
from lakegate.wap.revert import revert
from lakegate.wap.review import discard_run
from lakegate.wap.stream import StreamRefusedError, publish_slice
from lakegate.wap.transaction import Transaction, transaction
from proofs.model import State, written
from proofs.operations import (
    CHECKS,
    At,
    Break,
    CheckSet,
    Collect,
    Discard,
    Do,
    Gate,
    History,
    Ingest,
    LoseJournal,
    Operation,
    Outsider,
    PublishKept,
    Recover,
    Revert,
    Step,
    Stream,
    Transact,
    histories,
)
from proofs.result import ProofResult
from proofs.world import LEASE_S, Files, Killed, Process, World

MakeWorld = Callable[[], World]


class BodyFailsError(Exception):
    """What the body of a transaction raises."""


@dataclass
class Play(World):
    """Performs operations, one within the other, and holds what came of them against the model."""

    def meanwhile(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.perform(operation)

    def perform(self, operation: Operation) -> None:
        process = Process(self, getattr(operation, "at", ()))
        self.stack.append(process)
        try:
            self._perform(process, operation)
        except (Killed, KeyboardInterrupt, LakegateError, BodyFailsError):
            pass  # what a user would see; what matters is how things stand
        finally:
            self.stack.pop()
            self.alive[process.name] = False
        self.watch()

    def _perform(self, process: Process, operation: Operation) -> None:  # noqa: C901 - one for each kind
        match operation:
            case Ingest():
                self._ingest(process, operation)
            case Transact():
                self._transact(process, operation)
            case Gate():
                self._gate(process, operation)
            case Stream():
                self._stream(process, operation)
            case PublishKept(which, lax):
                self._publish_kept(process, which, lax=lax)
            case Discard(which):
                self._discard(process, which)
            case Revert(which):
                self._revert(process, which)
            case Recover():
                recover(process.context)
            case LoseJournal():
                self.lose_journal()
            case Collect():
                self._collect(process)
            case Outsider(kind, table):
                (self.outsider_drops if kind == "drop" else self.outsider_appends)(table)

    def _ingest(self, process: Process, operation: Ingest) -> None:
        run_id = self.new_run()
        self.model.ingests[run_id] = operation
        order = IngestRequest(
            run_id=run_id,
            table=TableIdentifier.parse(operation.table),
            batch=self.house.given(operation.files),
            checks=checks_of(operation.checks),
            branch=self._branch(run_id),
            target=self.target,
            on_failure=operation.on_failure,
            on_changed=operation.on_changed,
            on_busy=operation.on_busy,
            wait_s=-1,
        )
        before = len(self.model.events)
        try:
            run = ingest(process.context, order)
        except (LakegateError, KeyboardInterrupt) as error:
            if is_peaceful(operation) and not isinstance(error, self._allowed(operation)):
                raise AssertionError(f"P7 run {run_id} was not published: {error!r}") from error
            raise
        self.watch()
        self._judge(run, operation, before)

    def _allowed(self, operation: Ingest) -> tuple[type[Exception], ...]:
        """Return how an ingest may end that nothing is in the way of: for its own files and checks."""
        busy = (RetryableError,) if len(self.stack) > 1 else ()
        unknown_parent = (CheckError,) if operation.checks == "fk" else ()
        return (InputError, *busy, *unknown_parent) if operation.on_changed == "refuse" else (LakegateError,)

    def _judge(self, run: Run, operation: Ingest, before: int) -> None:
        """Check that what an ingest says of itself is so."""
        assert run.status in ("published", "rejected", "skipped"), f"P8 run {run.run_id} returned {run.status}"
        if run.status == "skipped":
            live = self.model.live_files()
            busy = {uri for _, uri, _ in self._files(CLAIMED)}
            ever = {run_id for event in self.model.events for run_id in (event.run_id,)}
            for known in run.skipped_files:
                published = live[operation.table, known.file.uri, known.file.version] or known.run_id in ever
                assert published or known.file.uri in busy, f"P5 {known} was skipped, and nobody published it"
        if run.status == "rejected" and is_peaceful(operation) and operation.on_changed != "replace":
            states: list[State] = [*self.model.past[before:], self.model.state]
            assert not all(self.model.passes(run.run_id, state) for state in states), f"P7 {run.run_id} was rejected"

    def _transact(self, process: Process, operation: Transact) -> None:
        run_id = self.new_run()
        self.model.transactions[run_id] = operation

        with transaction(
            process.context,
            run_id=run_id,
            name=None,
            branch=self._branch(run_id),
            target=self.target,
            configured=lambda _: checks_of(operation.checks),
            on_failure=operation.on_failure,
        ) as tx:
            for index, step in enumerate(operation.steps):
                if process.before("tx-step") is not None:
                    raise RetryableError("The engine is away.")
                self._step(tx, index, step)
            if operation.fails:
                raise BodyFailsError

    def _step(self, tx: Transaction, index: int, step: Step) -> None:
        counted = 0
        if step.kind == "derive":
            # That a table is not there is something one can rely on, too.
            with contextlib.suppress(LakegateError):
                counted = len(tx.table(step.source))
        rows = [{"k": k, "p": p, "tag": tag} for k, p, tag in written(tx.run.run_id, index, step, counted)]
        match step.kind:
            case "append" | "derive":
                tx.append(step.table, rows)
            case "overwrite":
                tx.overwrite(step.table, rows)
            case "upsert":
                tx.upsert(step.table, rows, keys=["k"])

    def _gate(self, process: Process, operation: Gate) -> None:
        run_id = self.new_run()
        self.model.transactions[run_id] = Transact(operation.steps, operation.checks, fails=operation.fails)
        order = Order(run_id, None, self._branch(run_id), self.target, {}, open_s=LEASE_S)
        configured = partial(_configured, checks_of(operation.checks))
        if operation.apart:
            self._append(open_branch(process.context, order), operation.steps)
            if not operation.fails:
                seal(process.context, run_id, configured)
            return
        with opened(process.context, order, configured) as session:
            self._append(session.run, operation.steps)
            if operation.fails:
                raise BodyFailsError

    def _append(self, run: Run, steps: Sequence[Step]) -> None:
        for index, step in enumerate(steps):
            self.write(run.branch, step.table, written(run.run_id, index, step, 0), run.run_id)

    def _stream(self, process: Process, operation: Stream) -> None:
        if self.stream is None:
            run_id = self.new_run()
            order = Order(run_id, None, f"stream/{self.name}/{run_id}", self.target, {}, open_s=1e9)
            self.model.stream_begins[run_id] = len(self.model.streamed)
            self.stream = open_branch(process.context, order)
        stream = self.stream
        for _ in range(operation.rows):
            number = len(self.model.streamed)
            rows = [(number, None, f"{stream.run_id}.{number}")]
            self.write(stream.branch, operation.table, rows, stream.run_id)
            head = self.catalog.get_ref(stream.branch).hash
            self.model.streamed.append((head, operation.table, tuple(rows)))
        publish_slice(process.context, stream.run_id, partial(_configured, checks_of("not_null")), prefix=self._prefix)

    def _end_stream(self, process: Process) -> None:
        """Publish what's left of the stream: then each of its rows must have been published."""
        stream = self.stream
        if stream is None:
            return
        try:
            while publish_slice(process.context, stream.run_id, partial(_configured, ()), prefix=self._prefix):
                self.watch()
        except StreamRefusedError:  # its table was dropped, or created by somebody else
            pass
        else:
            wanted = {
                row for _, _, rows in self.model.streamed[self.model.stream_begins[stream.run_id] :] for row in rows
            }
            found = {row for event in self.model.events for effect in event.effects for row in effect.rows}
            assert wanted <= found, f"P5 the stream's {wanted - found} were never published"
        discard_run(process.context, stream.branch, target=self.target)

    def _publish_kept(self, process: Process, which: int, *, lax: bool) -> None:
        branch = self._pick(which)
        run = None if branch is None else process.journal.find_by_branch(branch)
        if branch is None or run is None:
            return
        if lax:
            self.model.unaudited.add(run.run_id)
            for table in run.tables:
                review.audit_branch(
                    process.context, TableIdentifier.parse(table), branch, checks=(), configured=lambda _: ()
                )
        review.publish_branch(process.context, branch, configured=lambda _: ())

    def _discard(self, process: Process, which: int) -> None:
        branch = self._pick(which)
        if branch is not None:
            with contextlib.suppress(NotFoundError):
                discard_run(process.context, branch, target=self.target)

    def _revert(self, process: Process, which: int) -> None:
        known = [
            event.run_id
            for event in self.model.events
            if not event.run_id.startswith("outsider") and event.run_id not in self.model.reverts
        ]
        if not known:
            return
        new_run_id = self.new_run()
        self.model.reverts.add(new_run_id)
        with contextlib.suppress(NotRevertableError, NotFoundError):
            revert(
                process.context,
                known[-1 - which % len(known)],
                new_run_id=new_run_id,
                target=self.target,
            )

    def _collect(self, process: Process) -> None:
        # Nothing is under way for longer than the grace period.
        self.line.under_way.clear()
        gc(
            process.context,
            files=Files(self.house),
            keep_rejected=timedelta(days=7),
            grace=timedelta(days=1),
            now=datetime.now(UTC) + timedelta(days=30),
        )
        for commit in self.catalog.history(self.target, operations=True):
            self.house.rows_at(commit.hash)

    def _branch(self, run_id: str) -> str:
        return f"{self._prefix}/{run_id}"

    @property
    def _prefix(self) -> str:
        return f"wap/{self.name}"

    def _pick(self, which: int) -> str | None:
        branches = self.branches()
        return branches[which % len(branches)] if branches else None

    def finish(self) -> None:
        """Let what is under way arrive, recover, and check what is left."""
        self.line.arrive()
        self.watch()
        process = Process(self, ())
        self.stack.append(process)
        recover(process.context)
        self.watch()
        self._end_stream(process)
        self.clock += timedelta(seconds=2 * LEASE_S)  # the openings' deadline
        recover(process.context)
        self.watch()
        sync(process.context, self.target)
        assert recover(process.context) == (), "P6 there is something to recover after recovery"
        self._check_journal()
        self._check_claims()
        self._check_branches(process)
        for event in self.model.events:
            assert self.house.rows_at(event.commit) is not None

    def _check_journal(self) -> None:
        with self.database.reading() as tx:
            leases = tx.scalars(select(LEASES.c.run_id)).all()
        assert not leases, f"P6 leases are left: {leases}"
        published, standing = self.model.published(), self.model.standing()
        runs = Journal(self.database).runs(limit=sys.maxsize)
        for run in runs:
            if run.run_id in published:
                expected = "published" if run.run_id in standing else "reverted"
                revived = expected == "published" and run.run_id in self.model.undone()
                assert run.status == expected or revived, (
                    f"P6 run {run.run_id} is {expected}; the journal says {run.status}"
                )
            else:
                assert run.status in ("rejected", "failed", "skipped", "discarded", "staged"), (
                    f"P6 run {run.run_id} is not published; the journal says {run.status}"
                )
            self._check_report(run)
        unknown = {event.run_id for event in self.model.events if not event.run_id.startswith("outsider")}
        unknown -= {run.run_id for run in runs}
        assert not unknown, f"P6 the journal lacks {unknown}"

    def _check_report(self, run: Run) -> None:
        known_from_commit = not run.staged and run.branch == ""
        if run.status in ("published", "rejected") and not known_from_commit:
            tables = [str(staged.table) for staged in run.staged]
            assert [report.table for report in run.reports] == tables, f"P8 run {run.run_id} has no report"
        if run.status == "rejected":
            assert run.failures, f"P8 run {run.run_id} is rejected, and no check of it failed"

    def _check_claims(self) -> None:
        claimed = self._files(CLAIMED)
        assert not claimed, f"P6 claims are left: {claimed}"
        published = self._files(PUBLISHED)
        live = set(self.model.live_files())
        assert published == live, f"P6 the journal lacks {live - published}, and has {published - live} too much"

    def _files(self, state: str) -> set[tuple[str, str, str]]:
        """Return table, path and version of the files that runs claimed or published."""
        query = select(CLAIMS.c.table_name, CLAIMS.c.path, CLAIMS.c.version).where(CLAIMS.c.state == state)
        with self.database.reading() as tx:
            return set(tx.execute(query).tuples())

    def _check_branches(self, process: Process) -> None:
        for branch in self.branches():
            run = process.journal.find_by_branch(branch)
            if not self.is_lost(branch):
                assert run is not None, f"P6 branch {branch} is left, and nobody knows of it"
                assert run.branch_kept, f"P6 branch {branch} is left, and run {run.run_id} ({run.status}) denies it"


def _configured(checks: Sequence[Check], _: TableIdentifier) -> Sequence[Check]:
    return checks


def is_peaceful(operation: Ingest) -> bool:
    """Tell whether nothing stands in an ingest's way but others that append, and answers that get lost."""
    return all(_is_harmless(operation, at) for at in operation.at)


def _is_harmless(operation: Ingest, at: At) -> bool:
    match at.action:
        case Break(fault, False):
            return at.spot == "commit:target" and fault in ("lost", "late", "never", "conflict") and not at.after
        case Do(others):
            return all(
                isinstance(other, Ingest)
                and other.on_changed == "refuse"
                and is_peaceful(other)
                and not {number for number, _ in other.files} & {number for number, _ in operation.files}
                for other in others
            )
    return False


def checks_of(name: CheckSet) -> tuple[Check, ...]:
    return tuple(check for text in CHECKS[name] for check in parse_checks(text))


@contextlib.contextmanager
def directed(world: World) -> Iterator[None]:
    """Have the flow's fault points lead into ``world``, and nobody wait."""

    def reach(point: str) -> None:
        process = world.stack[-1]
        if process.before(point) is not None:
            raise RetryableError("Something is away.")
        process.after(point)

    with mock.patch.object(failpoints, "reach", reach), mock.patch.object(commit_loop, "_LONGEST_PAUSE_S", 0.0):
        yield


def play(history: History, world: Play) -> None:
    """Play one history, and check it."""
    with directed(world):
        for operation in history:
            world.perform(operation)
        world.finish()


def in_memory() -> Play:
    """Return an empty lake in memory."""
    return Play(MemoryCatalog(), target="main", name="h")


def on_catalog(catalog: Catalog, root: str, numbers: Iterator[int]) -> Play:
    """Return an empty lake on a catalog that others use too: the history has a target of its own.

    Args:
        catalog: The catalog.
        root: Name of a branch on which nothing stands.
        numbers: Tell histories apart.
    """
    name = f"h{next(numbers)}"
    target = f"{root}/{name}"
    catalog.create_branch(target, catalog.get_ref(root))
    return Play(catalog, target=target, name=f"{root}/{name}")


def prove(
    histories_: int,
    seed_: int,
    *,
    make: Callable[[], Play] = in_memory,
    longest: int = 6,
    on_main: bool = True,
    shrink: bool = True,
) -> ProofResult:
    """Play so many histories; see the module.

    Args:
        histories_: How many.
        seed_: The same seed gives the same histories.
        make: Makes an empty lake for each.
        longest: Operations in a history, at most; those within others not counted.
        on_main: Whether to include operations that know no other target than ``main``.
        shrink: Whether to look for the smallest history that fails; takes minutes.
    """
    played = 0

    @seed(seed_)
    @settings(
        max_examples=histories_,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(histories(longest=longest, on_main=on_main))
    def holds(history: History) -> None:
        nonlocal played
        played += 1
        play(history, make())

    try:
        holds()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure of the proof
        return ProofResult("state machine", played, [_told(error)])
    return ProofResult("state machine", played)


def _told(error: Exception) -> str:
    group = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    texts = []
    for one in group:
        frames = traceback.extract_tb(one.__traceback__)[-3:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
        texts.append("\n".join((f"{type(one).__name__}: {one}", where, *getattr(one, "__notes__", ()))))
    return "\n\n".join(texts)
