"""A run that this process is working on: its lease, its state, its steps and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Self

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential
from tenacity.stop import stop_when_event_set

from lakegate.context import Context
from lakegate.errors import LakegateError, LeaseLostError, RetryableError
from lakegate.ledger.sync import sync
from lakegate.model.request import IngestRequest
from lakegate.model.run import Lease, Publication, Run, RunError, RunStep
from lakegate.model.states import RunStatus, may_follow
from lakegate.progress import bound_to, without_secrets
from lakegate.telemetry import tracing
from lakegate.telemetry.metrics import Measurements, Sample, count_ending, count_steps
from lakegate.wap.alerting import alert_run
from lakegate.wap.deadline import NEVER, Deadline
from lakegate.wap.downstream import send

_LOG = logging.getLogger(__name__)
_END_RETRY_S = 30.0
"""How long to keep trying to record how a run ended while the journal is unavailable."""


class RunSession:
    """A run whose lease we hold: the only place that changes its state. Each change is written to the journal at once.

    Args:
        begun: The run as it was when we got its lease.
        token: The lease's token.
        deadline: When the work must have stopped.
        is_taken_over: Whether another process may still be about to publish the run.

    Attributes:
        run: The run now.
        order: The request as the user made it, for a run that may have to start over.
        before: The run as it was before somebody published its branch by name; it's that again if the publish fails.
        is_retried: Whether an earlier attempt may have written or published something.
        suspend_s: How long the run may be suspended before recovery ends it, in seconds.
        measured: Metrics that aren't in the journal yet.
        ended: Whether this process has ended the run, even if it couldn't write that to the journal.
    """

    def __init__(
        self, context: Context, begun: Run, token: str, deadline: Deadline = NEVER, *, is_taken_over: bool = False
    ) -> None:
        self._context = context
        self.begun = begun
        self.token = token
        self.deadline = deadline
        self.is_taken_over = is_taken_over
        # An earlier attempt's error says nothing about this one.
        self.run = begun if is_taken_over else begun.model_copy(update={"error": None})
        self.order: IngestRequest | None = begun.order
        self.before: Run | None = None
        self.is_retried = is_taken_over
        self.ended = False
        self.suspend_s = context.suspend_s
        self.measured = Measurements(tracing.observer())
        self._lost = threading.Event()
        self._written = False
        self._counted = begun  # the run whose steps and checks have been counted

    @classmethod
    def of(cls, context: Context, lease: Lease, deadline: Deadline = NEVER) -> Self:
        """Return a session with the lease of a run that another process may have worked on."""
        return cls(context, lease.run, lease.token or "", deadline, is_taken_over=True)

    def move(self, to: RunStatus, **changes: object) -> None:
        """Change the run's state, and other fields with it.

        Raises:
            LeaseLostError: When another process took the run over, and now decides its outcome.
        """
        self.update(status=to, **changes)

    def update(self, **changes: object) -> None:
        """Change fields of the run. Raises as :meth:`move` does."""
        changed = self._changed(**changes)
        self.run = self._context.journal.save(changed, self.token, was=self.run.status)

    def _changed(self, **changes: object) -> Run:
        return self._in_turn(self.run.model_copy(update=changes))

    def _in_turn(self, changed: Run) -> Run:
        """Return the changed run, if its state may follow the present one, or if its commit is on the target."""
        is_published = changed.status == "published" and changed.publication is not None
        if not is_published and not may_follow(self.run.status, changed.status):
            raise AssertionError(f"a run that is {self.run.status} can't become {changed.status}")
        return changed

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the body as a step of the run, with its start and end."""
        self.deadline.require_time(self.run.run_id)
        began = RunStep(name=name, started_at=datetime.now(UTC))
        before = self.run.steps
        self.run = self.run.model_copy(update={"steps": (*before, began)})
        outcome = "failed"
        try:
            with bound_to(self.run, step=name), tracing.step_span(name, self.run):
                yield
            outcome = "done"
        finally:
            ended = began.model_copy(update={"finished_at": datetime.now(UTC), "outcome": outcome})
            self.run = self.run.model_copy(update={"steps": (*before, ended)})

    def end(self, **changes: object) -> Run:
        """End the run: release its lease and settle its claims.

        The outcome doesn't depend on the journal. If the journal is unavailable, the write is retried for a while;
        after that, recovery ends the run once its lease has expired.

        Returns:
            The run, with what the target's history says about it.
        """
        changed = self._changed(**changes)
        kept = changed.order if changed.status == "failed" else None
        had_ended = changed.finished_at is not None and changed.status == self.begun.status
        finished = (changed.finished_at if had_ended else None) or datetime.now(UTC)
        lasts = self._context.branches_last if changed.status in ("rejected", "failed") else None
        until = None if lasts is None or not changed.branch_kept else finished + lasts
        ended = changed.model_copy(update={"order": kept, "finished_at": finished, "branch_until": until})
        try:
            self.run = self._write_end(ended)
            self._written = True
        except LeaseLostError:
            raise
        except RetryableError as error:
            self.run = ended
            self._context.narrator.note(
                f"Run {ended.run_id} has ended ({ended.status}), but the journal couldn't be written: {error.message} "
                "The next command will write it. To write it now: lakegate admin recover"
            )
        self.ended = True
        _log(self.run)
        return self.run

    def _write_end(self, ended: Run) -> Run:
        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_delay(_END_RETRY_S) | stop_when_event_set(self._lost),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        count_ending(self.measured, ended, self.begun)
        counted = self._count()

        def write() -> Run:
            try:
                return self._context.journal.end(ended, self.token, counted=counted)
            except LeaseLostError:
                self.mark_lease_lost()
                retried = retrying.statistics["attempt_number"] > 1
                known = self._context.journal.get(ended.run_id) if retried else None
                if known is None or known.finished_at != ended.finished_at:
                    raise
                # An earlier try of ours ended it, but its answer was lost.
                return known

        return retrying(write)

    def suspend(self, error: LakegateError | None = None) -> None:
        """Suspend the run until its next step, or until this step is retried if it failed with ``error``."""
        self.run = self.run.model_copy(update={"error": None if error is None else to_run_error(error)})
        self._context.journal.suspend(self.run, self.token, for_s=self.suspend_s, counted=self._count())
        _log(self.run)

    def go_back(self, before: Run, error: LakegateError | None = None) -> None:
        """Make the run what it was before somebody published or discarded it by name.

        Args:
            before: The run then: it had ended, or waited for its next step.
            error: Why it couldn't be published, for one that waits.
        """
        adopted = before.adopted or self.run.adopted
        kept = self._in_turn(before.model_copy(update={"branch_kept": True, "adopted": adopted}))
        if kept.finished_at is None:
            self.run = kept
            self.suspend(error)
        else:
            self.run = self._context.journal.end(kept, self.token, counted=self._count())
            self.ended = True

    def _count(self) -> list[Sample]:
        """Return the metrics since the last call."""
        count_steps(self.measured, self.run, self._counted)
        self._counted = self.run
        return self.measured.take()

    def require_lease(self) -> None:
        """Raise if another process took the run over."""
        # If this process was asleep, the heartbeat would notice too late.
        if self._lost.is_set() or not self._context.journal.renew(self.run.run_id, self.token):
            self.mark_lease_lost()
            raise LeaseLostError(
                f"Run {self.run.run_id} lost its lease (no heartbeat for {self._context.lease_s:,.0f} s); "
                "another process took it over.",
                hint=f"To see its outcome: lakegate runs {self.run.run_id}",
                run_id=self.run.run_id,
                branch=self.run.branch or None,
            )

    def lease_error(self) -> LeaseLostError | None:
        """Return the error if the lease is lost; ``None`` if it's ours, or if the journal doesn't answer."""
        try:
            self.require_lease()
        except LeaseLostError as lost:
            return lost
        except LakegateError:
            return None
        return None

    def mark_lease_lost(self) -> None:
        """Remember that the lease is lost."""
        self._lost.set()

    def give_up_lease(self) -> None:
        """Let any process take the run over at once; if it has ended, nobody needs to. Best effort: leases expire."""
        with suppress(LakegateError):
            self._context.journal.abandon(self.run.run_id, self.token)

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Keep the lease alive while the body works on the run."""
        stopped = threading.Event()

        def beat() -> None:
            while not stopped.wait(self._context.lease_s / 3):
                try:
                    if not self._context.journal.renew(self.run.run_id, self.token):
                        self.mark_lease_lost()
                        return
                except LakegateError:
                    continue  # the journal may be back before the lease runs out

        name = f"lease of {self.run.run_id}"
        thread = threading.Thread(target=copy_context().run, args=(beat,), name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def tell(self, *, recovered: bool = False) -> None:
        """Send alerts about the run, and due events to downstream systems, if the run ended here."""
        if self._written:
            with bound_to(self.run):
                self.run = alert_run(self._context, self.run, recovered=recovered)
        if self.ended:
            with bound_to(self.run, step="downstream"):
                try:
                    send(self._context, target=self.run.target, left_s=self.deadline.left_s)
                except KeyboardInterrupt:
                    text = f"Run {self.run.run_id} had ended: {self.run.status}. Downstream systems may not know yet."
                    raise KeyboardInterrupt(text) from None

    def end_as_published(self, publication: Publication) -> None:
        """End the run as published by another process, whether the journal says so already or not."""
        known: Run | None = None
        with suppress(LakegateError):
            sync(self._context, self.run.target)
            known = self._context.journal.get(self.run.run_id)
        if known is None or known.publication is None:
            known = self.run.model_copy(
                update={"status": "published", "publication": publication, "finished_at": datetime.now(UTC)}
            )
        self.run = known
        self.ended = True


def _log(run: Run) -> None:
    facts: dict[str, object] = {"status": run.status, "rows": run.publication.rows if run.publication else None}
    if run.failures:
        facts["failed_checks"] = [result.name for result in run.failures]
    if run.error is not None:
        facts |= {"code": run.error.code, "message": run.error.message}
    level = logging.WARNING if run.failures or run.error else logging.INFO
    with bound_to(run):
        _LOG.log(level, "Run %s: %s", run.run_id, run.status, extra={"facts": facts})


def to_run_error(error: LakegateError) -> RunError:
    """Return an error for the journal and alerts, without secrets that another program's message may contain."""
    said = error.to_dict()
    texts = {key: without_secrets(text) for key, text in said.items() if isinstance(text, str)}
    context = said["context"]
    if isinstance(context, dict):
        context = {key: without_secrets(one) if isinstance(one, str) else one for key, one in context.items()}
    return RunError.model_validate({**said, **texts, "context": context})
