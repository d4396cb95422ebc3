"""Publishing to a target: an intent is written down, the target is changed, and the log gets the commit.

Whoever dies in between leaves the intent, and the next process looks at the target to find out how far it came:

- no table is changed: the intent is given up, and the run's own recovery publishes it.
- all are: the commit is logged, with what was staged. What others have made of it since is another commit.
- some are: the others are published, too. If one can't be, because somebody else has changed it, those that are
  published are put back; and if that fails for the same reason, the log says which tables have what.

A request without an answer may arrive after its intent was given up. It's found by the snapshots that tables then have
(:meth:`Publisher.reopen`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakegate.catalogs import KeyConflict, commit_conflict
from lakegate.catalogs.rules import Key, new_hash
from lakegate.catalogs.target import intents
from lakegate.catalogs.target.intents import Intent
from lakegate.catalogs.target.log import Changes, Log
from lakegate.catalogs.target.targets import StaleError, Step, Target
from lakegate.catalogs.target.updates import (
    alterations,
    follows,
    goes_back,
    newest_added,
    snapshots_of,
    updates_between,
)
from lakegate.errors import (
    CatalogUnavailableError,
    ClockError,
    ConfigurationError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.journal.database import Database
from lakegate.model.refs import MAIN, TORN_PROPERTY, CommitRequest, Ref, TablePointer

Window: TypeAlias = Literal["announced", "table-published", "published"]
"""Where a process can die: after it wrote the intent, between two tables, and before it logs the commit."""

OTHERS = "another writer"
"""The author of what lakegate found in the target."""
_PATIENCE_S = 30.0
"""How long to wait for another process that is publishing the same table."""


@dataclass(frozen=True)
class Plan:
    """A request that was checked against a head of ``main``: what it changes, and the steps to make in the target."""

    changes: Changes
    steps: Sequence[Step]


@dataclass(frozen=True)
class _Made:
    """A step, and the table as it left it.

    Attributes:
        is_last: Whether nobody has changed the table since.
    """

    step: Step
    table: TablePointer | None
    is_last: bool = True

    def contents(self) -> Changes:
        """Return the keys that it changed."""
        moved: Changes = {self.step.base.table.parts: None} if self.step.base is not None else {}
        return {**moved, self.step.table.parts: self.table}


class Publisher:
    """Changes the target's tables, and logs it.

    Args:
        reach: Called in each window, for tests to stop there.
    """

    def __init__(self, database: Database, log: Log, target: Target, reach: Callable[[Window], None]) -> None:
        self._database = database
        self._log = log
        self._target = target
        self._reach = reach

    def publish(self, request: CommitRequest, checked: Callable[[str], Plan]) -> Ref:
        """Publish a request; raises what :meth:`lakegate.ports.Catalog.commit` does.

        Args:
            checked: Checks the request against a head.
        """
        while True:
            head = self._log.ref(MAIN).hash
            plan = checked(head)
            intent = _intent(request, head, plan)
            with self._database.named_lock(intent.lock, timeout_s=_PATIENCE_S) as is_ours:
                if not is_ours:
                    raise _busy(intent)
                rival = self._announce(intent, head)
                if rival is None:
                    return self._carry_out(request, intent, plan)
            if rival is not intent and not self._settle(rival, patience_s=_PATIENCE_S):
                raise _busy(rival)

    def settle(self) -> frozenset[Key]:
        """Finish or undo what dead processes announced; return the keys of what isn't settled.

        That's what living processes are about to change, and what can't be settled right now, without rights to write
        to the target for instance: readers don't wait for it.
        """
        with self._database.reading() as tx:
            found = intents.pending(tx)
        return intents.keys_of(one for one in found if self._database.is_locked(one.lock) or not self._can_settle(one))

    def unsettled(self) -> list[tuple[str, str]]:
        """Return the run and the tables of each publish that dead processes left and that can't be settled now."""
        self.settle()
        with self._database.reading() as tx:
            left = [one for one in intents.pending(tx) if not self._database.is_locked(one.lock)]
        return [(one.run_id or "", one.subject) for one in left]

    def require_settled(self, run_id: str) -> None:
        """Check that no publish of a run is under way or unsettled: the log would lack it.

        Raises:
            CatalogUnavailableError: If one is.
        """
        self.settle()
        with self._database.reading() as tx:
            unsettled = next((one for one in intents.pending(tx) if one.run_id == run_id), None)
        if unsettled is not None:
            raise CatalogUnavailableError(
                f"Run {run_id} is being published to {unsettled.subject}, or that couldn't be settled yet after its "
                f"process died. {self._target.identity()} must be reachable, and writable for this user.",
                hint="Try again. To see what's wrong: lakegate admin verify",
                run_id=run_id,
            )

    def reopen(self, keys: Collection[Key]) -> bool:
        """Look whether the change of one of ``keys`` is a request that arrived after its intent was given up.

        Returns:
            Whether there is one: its intent must be settled again.
        """
        with self._database.reading() as tx:
            given_up = [one for one in intents.given_up(tx) if not one.written.isdisjoint(keys)]
        if not given_up:
            return False
        standings = [(one, {self._standing(step)[0] for step in one.steps}) for one in given_up]
        late = next((one for one, found in standings if "published" in found), None)
        if late is None:
            # A request on top of what a table was is refused by now.
            hopeless = [one for one, found in standings if found == {"changed"}]
            with self._database.writing() as tx:
                intents.forget(tx, hopeless)
            return False
        with self._database.writing() as tx:
            intents.take_turn(tx)
            if any(one.excludes(late) for one in intents.pending(tx)):
                return False
            intents.reopen(tx, late)
        return True

    def _announce(self, intent: Intent, head: str) -> Intent | None:
        """Write an intent down; return the one to wait for, or ``intent`` itself if ``main`` has moved."""
        with self._database.writing(survives_power_loss=True) as tx:
            intents.take_turn(tx)
            rival = next((one for one in intents.pending(tx) if one.excludes(intent)), None)
            if rival is not None:
                return rival
            if not self._log.is_at(tx, MAIN, head):
                return intent
            intents.add(tx, intent)
        self._reach("announced")
        return None

    def _carry_out(self, request: CommitRequest, intent: Intent, plan: Plan) -> Ref:
        try:
            for name in intent.namespaces:
                self._target.create_namespace(name)
            done = self._make(intent.steps, intent.run_id)
        except StaleError as error:
            if self._was_made(intent):
                return Ref(name=MAIN, hash=intent.intent_id)
            self._remove(intent)
            conflict = KeyConflict(str(error.table), "VALUE_DIFFERS")
            raise commit_conflict(request.branch, request.base, [conflict], str(error)) from error
        except OutcomeUnknownError:
            raise
        except LakegateError:
            self._remove(intent)
            raise
        self._reach("published")
        try:
            return self._record(intent, {**plan.changes, **done})
        except LakegateError as error:
            raise OutcomeUnknownError(
                f"The change of {intent.subject} was published, but it can't be logged: {error.message}",
                hint="The next command that reads the lake logs it.",
            ) from error

    def _was_made(self, intent: Intent) -> bool:
        """Log a publish whose request was sent twice on its way: the second was refused because of the first."""
        try:
            return self._finish(intent)
        except LakegateError as error:
            raise OutcomeUnknownError(
                f"{self._target.identity()} refused the change of {intent.subject}, and can't be asked why: "
                f"{error.message}",
                hint="The next command that reads the lake finds out whether it was published.",
            ) from error

    def _make(self, steps: Sequence[Step], run_id: str | None) -> Changes:
        """Make all steps or none; return what they changed.

        Raises:
            StaleError, LakegateError: If one can't be made. Those before it are put back.
            OutcomeUnknownError: If one had no answer, or those before it can't be put back now.
        """
        batches = [list(steps)] if self._target.capabilities.together(steps) else [[step] for step in steps]
        made: list[_Made] = []
        for number, batch in enumerate(batches):
            if number:
                self._reach("table-published")
            try:
                now = self._applied(batch)
                made += now
                for one in now:
                    self._require_as_staged(one)
            except OutcomeUnknownError:
                raise
            except (StaleError, LakegateError) as error:
                self._put_back(made, run_id, str(error))
                raise
        return _contents(made)

    def _applied(self, steps: Sequence[Step]) -> list[_Made]:
        """Make steps in the target at once.

        Catalogs have many words for a conflict, for instance when others have expired a snapshot or written to another
        reference of the table. So each refusal is one if a table has changed.
        """
        try:
            return [_Made(step, table) for step, table in zip(steps, self._target.apply(steps), strict=True)]
        except ConfigurationError:
            raise
        except InputError as error:
            moved = next((step.table for step in steps if self._standing(step)[0] != "at base"), None)
            if moved is None:
                raise
            raise StaleError(moved, error.message) from error

    def _require_as_staged(self, made: _Made) -> None:
        """Check that the target made of a table what was audited."""
        altered = self._altered(made)
        if altered:
            raise InputError(
                f"The catalog {self._target.identity()} doesn't keep table {made.step.table} as it was staged: "
                f"{'; '.join(altered)}.",
                hint="The table was put back: lakegate can't publish this change to this catalog.",
                table=str(made.step.table),
            )

    def _altered(self, made: _Made) -> list[str]:
        staged, published = made.step.staged, made.table
        if staged is None or published is None or published.metadata_location == staged.metadata_location:
            return []
        base = None if made.step.base is None else self._target.document(made.step.base)
        return alterations(self._target.document(staged), self._target.document(published), base)

    def _put_back(self, made: Sequence[_Made], run_id: str | None, reason: str = "Its process died.") -> bool:
        """Undo steps, the last one first; return whether all are.

        The log gets those whose tables somebody has changed further.

        Raises:
            OutcomeUnknownError: If the target can't be changed now.
        """
        kept: list[_Made] = []
        for one in reversed(made):
            if not one.is_last:
                kept.append(one)
                continue
            try:
                self._target.apply([one.step.back(one.table)])
            except ConfigurationError as error:
                raise self._half(one, reason, error) from error
            except (StaleError, InputError):
                kept.append(one)
            except LakegateError as error:
                raise self._half(one, reason, error) from error
        self._log_part(kept, run_id)
        return not kept

    def _half(self, made: _Made, reason: str, error: LakegateError) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"A publish that began with table {made.step.table} failed, and that can't be put back now: {reason} "
            f"{error.message}",
            hint=f"Give this user its rights on {self._target.identity()} again. The next command that reads the lake "
            "then finishes or undoes the publish.",
            table=str(made.step.table),
        )

    def _log_part(self, made: Sequence[_Made], run_id: str | None) -> None:
        """Log the part of a publish that failed and that can't be put back."""
        names = ", ".join(str(one.step.table) for one in made)
        logged, properties = not made, {} if run_id is None else {TORN_PROPERTY: run_id}
        while not logged:
            head, message = self._log.ref(MAIN).hash, f"a part of a publish that failed: {names}"
            draft = self._log.draft(head, _contents(made), message, properties, author=OTHERS)
            with self._database.writing() as tx:
                logged = self._log.append(tx, MAIN, draft)

    def _record(self, intent: Intent, changes: Changes) -> Ref:
        """Log the commit of an intent, once, and remove it."""
        logged = False
        while not logged:
            head = self._log.ref(MAIN).hash
            draft = self._log.draft(head, changes, intent.message, intent.properties, commit=intent.intent_id)
            with self._database.writing() as tx:
                if not self._log.has(tx, intent.intent_id):
                    if not intents.is_pending(tx, intent):  # our connection broke, and with it our lock
                        raise CatalogUnavailableError("another process has taken this one for dead.")
                    if not self._log.append(tx, MAIN, draft):
                        continue
                intents.remove(tx, intent)
                logged = True
        return Ref(name=MAIN, hash=intent.intent_id)

    def _remove(self, intent: Intent) -> None:
        with self._database.writing() as tx:
            intents.remove(tx, intent)

    def _can_settle(self, intent: Intent) -> bool:
        try:
            return self._settle(intent, patience_s=0)
        except LakegateError:
            return False

    def _settle(self, intent: Intent, *, patience_s: float) -> bool:
        """Wait for an intent's process, and settle what it left; return ``False`` if it's still at it."""
        with self._database.named_lock(intent.lock, timeout_s=patience_s) as is_ours:
            if not is_ours:
                return False
            with self._database.reading() as tx:
                is_left = intents.is_pending(tx, intent)
            if is_left and not self._finish(intent):
                with self._database.writing() as tx:
                    intents.give_up(tx, intent)
        return True

    def _finish(self, intent: Intent) -> bool:
        """Log an intent's commit if all of it was published or can still be; otherwise put it back."""
        landed, rest, is_whole = self._survey(intent)
        for _ in intent.steps:
            # Nothing kept others from what it relied on while it was given up.
            if not landed or not rest or not is_whole or intent.is_late:
                break
            try:
                self._make(rest, intent.run_id)
            except ConfigurationError:  # no rights: somebody else may have them
                raise
            except (StaleError, InputError):  # others were faster, or the request that had no answer has arrived
                pass
            landed, rest, is_whole = self._survey(intent)
        if landed and not rest and is_whole:
            namespaces = {name: name for name in intent.namespaces}
            self._record(intent, {**namespaces, **_contents(landed)})
            return True
        if not self._put_back(landed, intent.run_id):
            self._remove(intent)  # the log has its part: it mustn't be found again
        return False

    def _survey(self, intent: Intent) -> tuple[list[_Made], list[Step], bool]:
        """Return the steps that were made, those that still can be, and whether there are no others."""
        landed, rest, altered = list[_Made](), list[Step](), False
        for step in intent.steps:
            standing, now = self._standing(step)
            if standing == "published":
                made = self._made(step, now)
                altered = altered or (made.is_last and bool(self._altered(made)))
                landed.append(made)
            elif standing == "at base":
                rest.append(step.onto(now))
        return landed, rest, len(landed) + len(rest) == len(intent.steps) and not altered

    def _made(self, step: Step, now: TablePointer | None) -> _Made:
        """Return a step that was made, and the table as it left it: as staged, if somebody has changed it since."""
        staged = step.staged
        if staged is None or now is None or now.metadata_location == staged.metadata_location:
            return _Made(step, now)
        document = self._target.document(now)
        try:
            is_last = step.base is not None and follows(document, step.base.metadata_location)
            is_last = is_last or not updates_between(self._target.document(staged), document, now.table).updates
        except (InputError, ClockError):
            is_last = False
        return _Made(step, now if is_last else staged.model_copy(update={"content_id": now.content_id}), is_last)

    def _standing(self, step: Step) -> tuple[Literal["at base", "published", "changed"], TablePointer | None]:
        """Return how far a step came, and the table now."""
        names = [step.table] if step.old_name is None else [step.table, step.old_name]
        tables = self._target.tables(names)
        now = tables[step.table] or tables[names[-1]]
        if step.staged is None:
            is_made = now is None
        else:
            is_made = now is not None and now.table == step.table and self._has(step.base, step.staged, now)
        if is_made:
            return "published", now
        at_base = (now and now.metadata_location) == (step.base and step.base.metadata_location)
        return ("at base" if at_base else "changed"), now

    def _has(self, base: TablePointer | None, staged: TablePointer, now: TablePointer) -> bool:
        """Return whether a table has what was staged; somebody may have changed it since."""
        if now.metadata_location == staged.metadata_location:
            return True
        if base is not None and now.metadata_location == base.metadata_location:
            return False
        document = self._target.document(now)
        try:
            wanted = self._target.document(staged)
            before = None if base is None else self._target.document(base)
        except NotFoundError:  # the target may delete what it doesn't know, and old metadata files
            return False
        if document["table-uuid"] != wanted["table-uuid"]:
            return False
        added = newest_added(before, wanted)
        if added is not None:
            return added in snapshots_of(document) or added in self._target.writers(now)
        return goes_back(before, wanted, document) or not alterations(wanted, document)


def _contents(made: Sequence[_Made]) -> dict[Key, TablePointer | tuple[str, ...] | None]:
    return {key: content for one in made for key, content in one.contents().items()}


def _intent(request: CommitRequest, head: str, plan: Plan) -> Intent:
    return Intent(
        intent_id=new_hash(head),
        steps=tuple(sorted(plan.steps, key=lambda step: step.staged is None)),  # a drop can't always be undone
        namespaces=request.namespaces,
        relied_on=tuple(table.parts for table in request.unchanged),
        alone=request.at_head,
        message=request.message,
        properties=request.properties,
    )


def _busy(intent: Intent) -> CatalogUnavailableError:
    return CatalogUnavailableError(
        f"Another process has been publishing to {intent.subject} for {_PATIENCE_S:.0f} s.", hint="Try again."
    )
