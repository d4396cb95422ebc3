"""Publishing to a target: an intent is written down, the target is changed, and the log gets the commit.

Whoever dies in between leaves the intent, and the next process looks at the target to find out how far it came:

- no table is changed: the intent is removed, and the run's own recovery publishes it.
- all are: the commit is logged.
- some are: the others are published, too. If one can't be, because somebody else has changed it, those that are
  published are put back; and if that fails for the same reason, the log says which tables have what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakegate.catalogs import KeyConflict, commit_conflict
from lakegate.catalogs.rules import Key, new_hash
from lakegate.catalogs.target import intents
from lakegate.catalogs.target.intents import Intent
from lakegate.catalogs.target.log import Changes, Log
from lakegate.catalogs.target.targets import StaleError, Step, Target
from lakegate.catalogs.target.updates import alterations, snapshots_of, updates_between
from lakegate.errors import CatalogUnavailableError, InputError, LakegateError, NotFoundError, OutcomeUnknownError
from lakegate.journal.database import Database
from lakegate.model.refs import MAIN, CommitRequest, Ref, TablePointer

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
    """A step, and the table as it was left by it, or found after it."""

    step: Step
    table: TablePointer | None

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
        """Finish or undo what dead processes announced; return the keys that living ones are about to change."""
        with self._database.reading() as tx:
            found = intents.pending(tx)
        alive = [one for one in found if self._database.is_locked(one.lock) or not self._settle(one, patience_s=0)]
        return intents.keys_of(alive)

    def _announce(self, intent: Intent, head: str) -> Intent | None:
        """Write an intent down; return the one to wait for, or ``intent`` itself if ``main`` has moved."""
        with self._database.writing() as tx:
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
            done = self._make(intent.steps)
        except StaleError as error:
            self._remove(intent)
            conflict = KeyConflict(str(error.table), "VALUE_DIFFERS")
            raise commit_conflict(request.branch, request.base, [conflict], str(error)) from error
        except InputError:
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

    def _make(self, steps: Sequence[Step]) -> Changes:
        """Make all steps or none; return what they changed.

        Raises:
            StaleError, InputError: If one can't be made. Those before it are put back.
        """
        batches = [list(steps)] if self._target.capabilities.together(steps) else [[step] for step in steps]
        made: list[_Made] = []
        for number, batch in enumerate(batches):
            if number:
                self._reach("table-published")
            try:
                now = [_Made(step, table) for step, table in zip(batch, self._target.apply(batch), strict=True)]
                made += now
                for one in now:
                    self._require_as_staged(one)
            except (StaleError, InputError):
                self._put_back(made)
                raise
        return _contents(made)

    def _require_as_staged(self, made: _Made) -> None:
        """Check that the target made of a table what was audited."""
        staged, published = made.step.staged, made.table
        if staged is None or published is None or published.metadata_location == staged.metadata_location:
            return
        altered = alterations(self._target.document(staged), self._target.document(published))
        if altered:
            raise InputError(
                f"The catalog {self._target.identity()} doesn't keep table {staged.table} as it was staged: "
                f"{'; '.join(altered)}.",
                hint="The table was put back: lakegate can't publish this change to this catalog.",
                table=str(staged.table),
            )

    def _put_back(self, made: Sequence[_Made]) -> None:
        """Undo steps, the last one first. The log gets those whose tables somebody has changed further."""
        kept: list[_Made] = []
        for one in reversed(made):
            try:
                self._target.apply([one.step.back(one.table)])
            except (StaleError, InputError):
                kept.append(one)
        self._log_part(kept)

    def _log_part(self, made: Sequence[_Made]) -> None:
        """Log the part of a publish that failed and that can't be put back."""
        names = ", ".join(str(one.step.table) for one in made)
        logged = not made
        while not logged:
            head, message = self._log.ref(MAIN).hash, f"a part of a publish that failed: {names}"
            draft = self._log.draft(head, _contents(made), message, {}, author=OTHERS)
            with self._database.writing() as tx:
                logged = self._log.append(tx, MAIN, draft)

    def _record(self, intent: Intent, changes: Changes) -> Ref:
        """Log the commit of an intent, once, and remove it."""
        logged = False
        while not logged:
            head = self._log.ref(MAIN).hash
            draft = self._log.draft(head, changes, intent.message, intent.properties, commit=intent.intent_id)
            with self._database.writing() as tx:
                logged = self._log.has(tx, intent.intent_id) or self._log.append(tx, MAIN, draft)
                if logged:
                    intents.remove(tx, intent)
        return Ref(name=MAIN, hash=intent.intent_id)

    def _remove(self, intent: Intent) -> None:
        with self._database.writing() as tx:
            intents.remove(tx, intent)

    def _settle(self, intent: Intent, *, patience_s: float) -> bool:
        """Wait for an intent's process, and settle what it left; return ``False`` if it's still at it."""
        with self._database.named_lock(intent.lock, timeout_s=patience_s) as is_ours:
            if not is_ours:
                return False
            with self._database.reading() as tx:
                is_left = intent in intents.pending(tx)
            if is_left:
                self._finish(intent)
        return True

    def _finish(self, intent: Intent) -> None:
        found = [(self._standing(step), step) for step in intent.steps]
        landed = [_Made(step, now) for (standing, now), step in found if standing == "published"]
        rest = [step.onto(now) for (standing, now), step in found if standing == "at base"]
        done = self._completed(rest) if landed and len(landed) + len(rest) == len(found) else None
        if done is None:
            alone = [one for one in landed if self._is_as_left(one)]
            self._put_back(alone)
            self._log_part([one for one in landed if one not in alone])
            self._remove(intent)
        else:
            namespaces = {name: name for name in intent.namespaces}
            self._record(intent, {**namespaces, **_contents(landed), **done})

    def _is_as_left(self, made: _Made) -> bool:
        """Return whether nobody has changed a table since a step was made."""
        staged, now = made.step.staged, made.table
        if staged is None or now is None or now.metadata_location == staged.metadata_location:
            return True
        try:
            further = updates_between(self._target.document(staged), self._target.document(now), staged.table)
        except InputError:
            return False
        return not further.updates

    def _completed(self, rest: Sequence[Step]) -> Changes | None:
        """Make the steps that are left; return what they changed, or ``None`` if one can't be made."""
        try:
            return self._make(rest)
        except (StaleError, InputError):
            return None

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
            old = set(snapshots_of(self._target.document(base))) if base is not None else set()
        except NotFoundError:  # the target may delete what it doesn't know, and old metadata files
            return False
        if document["table-uuid"] != wanted["table-uuid"]:
            return False
        new = set(snapshots_of(wanted)) - old
        return new <= set(snapshots_of(document)) if new else not alterations(wanted, document)


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
