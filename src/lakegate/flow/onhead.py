"""On the head: one commit on top of a branch as it is now, tried again while rivals are faster, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from lakegate.errors import ConflictError, LakegateError, OutcomeUnknownError
from lakegate.flow import faults
from lakegate.flow.rooms import Rooms
from lakegate.model.refs import CommitRequest, Ref

_ATTEMPTS = 40
_LONGEST_PAUSE_S = 1.0
_TURN_TIMEOUT_S = 30.0

Build = Callable[[Ref], CommitRequest | str]
"""Given the branch's head: what to commit on top of it, or the commit that turned out to be there already."""


class _Rival(Exception):  # noqa: N818 - not an error: somebody was faster, and we look again
    """The branch moved between looking and committing."""

    def __init__(self, conflict: ConflictError) -> None:
        super().__init__(conflict.message)
        self.conflict = conflict


def commit_on_head(
    rooms: Rooms,
    target: str,
    run_id: str,
    build: Build,
    *,
    unknown: Callable[[], OutcomeUnknownError],
    look: Callable[[], Ref] | None = None,
    require_lease: Callable[[], None] | None = None,
) -> str:
    """Commit what ``build`` makes of the head of ``target``, and return the commit's hash.

    Args:
        rooms: The lake's rooms.
        target: The branch.
        run_id: Run id in the commit's properties, by which it is found when its answer was lost.
        build: Called for each attempt.
        unknown: Makes the error for when the catalog went away with the commit and has not come back.
        look: Returns the branch as it is now, for those who want to know more of it in the same request.
        require_lease: Called before each attempt; raises when somebody else has taken the run over.

    Raises:
        ConflictError: When the branch never stood still.
        OutcomeUnknownError: What ``unknown`` makes.
    """
    attempt = _Attempt(rooms, target, run_id, look or (lambda: rooms.catalog.get_ref(target)), build, unknown)
    retrying = Retrying(
        retry=retry_if_exception_type(_Rival),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.02, max=_LONGEST_PAUSE_S),
        reraise=True,
    )
    try:
        for tried in retrying:
            with tried:
                if require_lease is not None:
                    require_lease()
                return attempt.commit()
    except _Rival as rival:
        raise rival.conflict from None
    raise AssertionError("tenacity ends by returning or raising")


class _Attempt:
    """Tries to commit, and remembers since when a commit of its own may be on its way."""

    def __init__(
        self,
        rooms: Rooms,
        target: str,
        run_id: str,
        look: Callable[[], Ref],
        build: Build,
        unknown: Callable[[], OutcomeUnknownError],
    ) -> None:
        self._rooms = rooms
        self._target = target
        self._run_id = run_id
        self._look = look
        self._build = build
        self._unknown = unknown
        self._lost_since: str | None = None

    def commit(self) -> str:
        head = self._look()
        if self._lost_since is not None and (own := self._own_commit(head.hash)) is not None:
            return own
        built = self._build(head)
        if isinstance(built, str):
            return built
        faults.reach("before-commit")
        try:
            return self._rooms.catalog.commit(built).hash
        except ConflictError as conflict:
            raise _Rival(conflict) from conflict
        except OutcomeUnknownError as error:
            return self._settle(head, error)

    def _settle(self, head: Ref, error: OutcomeUnknownError) -> str:
        self._lost_since = self._lost_since or head.hash
        try:
            own = self._own_commit(self._target)
        except LakegateError:
            raise self._unknown() from error
        if own is None:
            raise _Rival(ConflictError(error.message, hint=error.hint, **error.context)) from error
        return own

    def _own_commit(self, ref: str) -> str | None:
        commits = self._rooms.catalog.history(ref, until=self._lost_since, run_id=self._run_id)
        return next((commit.hash for commit in commits), None)


@contextmanager
def turns(rooms: Rooms, target: str, tables: Sequence[str]) -> Iterator[None]:
    """Queue up with the rivals for each table, in one order for all."""
    with ExitStack() as stack:
        for table in sorted(tables):
            stack.enter_context(rooms.journal.turn(f"{target}/{table}", timeout_s=_TURN_TIMEOUT_S))
        yield
