"""Files that branches and tags reach, and how far back a state may be made current again.

``gc`` deletes a file only if nothing has needed it for ``gc.keep``: no branch or tag now, no commit in their history
since then, and neither did the state that was current at that time. A revert, a restore, a new branch or a new tag goes
back at most ``gc.keep``. So both can run at the same time without knowing of each other. ``gc`` waits for
:data:`MARGIN` longer, because clocks differ and a commit takes a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from posixpath import normpath

from lakegate.context import Context
from lakegate.errors import ConflictError, InputError, LakegateError, NotFoundError
from lakegate.model.maintenance import GcProblem
from lakegate.model.refs import MAIN, Commit, Ref, TablePointer
from lakegate.model.run import Run
from lakegate.model.words import counted, duration
from lakegate.ports import Step

MARGIN = timedelta(hours=1)
"""How much longer than ``gc.keep`` files stay."""
_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes that other programs write for the same objects."""
_TABLES_AT_ONCE = 8
_SHOWN = 3


def canonical(location: str) -> str:
    """Return one spelling for all paths of the same file.

    Example:
        >>> canonical("file:///lake//t"), canonical("/lake/t"), canonical("s3a://bucket/t/")
        ('file:/lake/t', 'file:/lake/t', 's3:/bucket/t')
        >>> canonical("file:/lake/x/../t")  # in an object's key, dots mean nothing
        'file:/lake/t'
        >>> canonical("abfs://lake@ACME.dfs.core.windows.net/t"), canonical("wasbs://lake@acme.blob.core.windows.net/t")
        ('abfss:/lake@acme.dfs.core.windows.net/t', 'abfss:/lake@acme.dfs.core.windows.net/t')
    """
    scheme, colon, rest = location.partition(":")
    scheme = scheme.lower()
    if not colon or "/" in scheme:
        scheme, rest = "file", location
    elif scheme == "file":
        rest = rest.removeprefix("//localhost")
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "file" and "/." in rest:
        rest = normpath(rest)
    elif scheme == "abfss":
        account, slash, key = rest.lstrip("/").partition("/")
        rest = f"/{account.lower().replace('.blob.', '.dfs.')}{slash}{key}"
    return f"{scheme}:{re.sub('/+', '/', rest)}".rstrip("/")


def with_other_names(tables: Iterable[str], names: Collection[Collection[str]]) -> set[str]:
    """Return names of ``tables`` with all other names that the same tables had.

    Args:
        names: For each table, the names that it had. Several tables may have had the same name in turn.
    """
    found, known = set(tables), 0
    while len(found) != known:
        known = len(found)
        found.update(*(one for one in names if not found.isdisjoint(one)))
    return found


class Reachable:
    """The files that references reach, added commit by commit, each commit once.

    Args:
        root: Folder of all tables, as a canonical path.
        oldest: Time of the oldest state that must stay readable; ``None`` for the whole history.
        found: Called with the canonical path of each reachable file.
        reach: Yields the files that a state needs; by default :meth:`lakegate.ports.TableReader.reach`.
    """

    def __init__(
        self,
        context: Context,
        root: str,
        oldest: datetime | None,
        found: Callable[[str], None],
        reach: Callable[[TablePointer, set[str]], Iterator[str]] | None = None,
    ) -> None:
        self._context = context
        self._root = root
        self._oldest = oldest
        self._found = found
        self._files_of = reach or context.reader.reach
        self._heads: set[str] = set()  # whose history was added
        self._commits: set[str] = set()
        self._states: set[str] = set()  # commits of which all tables were added
        self._walked: set[str] = set()  # metadata files that were read
        self._folders: dict[str, set[str]] = {}  # by the table's name
        self._names: dict[str, set[str]] = {}  # by the table's content id
        self._foreign: set[str] = set()  # folders of views and other content
        self._unreadable: dict[str, GcProblem] = {}  # by the table's name

    def add(self, refs: Iterable[Ref], step: Step | None = None) -> None:
        """Add everything that ``refs`` reach. Commits that were added before cost nothing."""
        states = (pointer for ref in refs for pointer in self._new_states(ref))
        pending = {(pointer.table, pointer.metadata_location): pointer for pointer in states}
        for done, pointer in enumerate(pending.values(), 1):
            self._reach(pointer)
            if step is not None:
                step.progress(done, len(pending), "table states")

    def keep(self, states: Iterable[TablePointer]) -> None:
        """Add states that are needed whether references reach them or not."""
        for pointer in states:
            self._reach(pointer)

    @property
    def problems(self) -> tuple[GcProblem, ...]:
        """A problem for each table with a state that couldn't be read."""
        return tuple(self._unreadable.values())

    def has_table_in(self, folder: str) -> bool:
        """Return whether a commit put a table in ``folder``."""
        return any(folder in folders for folders in self._folders.values())

    def must_keep(self, folder: str) -> bool:
        """Return whether to keep all of ``folder``, because some of the metadata that may refer to it can't be read.

        That's true of the folders of views and other content, and of all folders of a table with an unreadable state:
        those that commits name, and those named like the folders of new tables (``<name>_…``), whose files may have
        been rebased onto the table.
        """
        if folder in self._foreign:
            return True
        return any(
            folder in self._folders.get(name, ()) or folder.startswith(f"{self._root}/{name.replace('.', '/')}_")
            for name in with_other_names(self._unreadable, self._names.values())
        )

    def _new_states(self, ref: Ref) -> list[TablePointer]:
        # A head's own state always counts, even if it's older than the limit.
        if ref.hash in self._heads or (self._oldest is None and ref.hash in self._commits):
            return []
        self._heads.add(ref.hash)
        found: list[TablePointer] = []
        last: Commit | None = None
        beyond = False
        for commit in self._context.catalog.history(ref.hash, operations=True):
            # Clocks may have gone back: an older commit can have a later time.
            if beyond != (self._oldest is not None and commit.time <= self._oldest):
                beyond = not beyond
                found += self._state(commit)
            if commit.hash in self._commits:
                return found
            self._commits.add(commit.hash)
            self._foreign.update(_folder(location) for location in commit.foreign)
            if not beyond:
                found += commit.puts
            last = commit
        if last is not None and not beyond:
            # If the catalog's own maintenance has cut the history, its first commit already has tables.
            found += self._state(last)
        return found

    def _state(self, commit: Commit) -> list[TablePointer]:
        if commit.hash in self._states:
            return []
        self._states.add(commit.hash)
        return list(self._context.catalog.list_tables(Ref.detached(commit.hash)))

    def _reach(self, pointer: TablePointer) -> None:
        name = str(pointer.table)
        self._folders.setdefault(name, set()).add(_folder(pointer.metadata_location))
        self._names.setdefault(pointer.content_id or name, set()).add(name)
        try:
            for path in self._files_of(pointer, self._walked):
                self._found(canonical(path))
        except LakegateError as error:
            self._unreadable.setdefault(name, GcProblem(subject=name, message=error.message, hint=error.hint))


def is_kept(context: Context, superseded_at: datetime) -> bool:
    """Return whether ``gc`` still keeps the files of a state that another one took the place of at that time."""
    return superseded_at > datetime.now(UTC) - context.keep


def too_old(context: Context, what: str) -> InputError:
    """Return the error for a state that ``gc`` may have deleted files of."""
    days = context.keep.days
    span = counted(days, "day") if timedelta(days=days) == context.keep else duration(context.keep.total_seconds())
    return InputError(
        f"{what} is too old: earlier states are kept for {span} (gc.keep). Nothing was changed.",
        hint="`lakegate log` shows the commits since then. To keep states for longer, set gc.keep, or tag them: "
        "lakegate tag create NAME",
    )


def require_kept(context: Context, at: Ref) -> None:
    """Check that ``gc`` keeps the files of a commit while the caller makes a branch or tag point at it.

    Raises:
        InputError: When the commit was the head of ``main`` longer than ``gc.keep`` ago, or files of it don't exist.
    """
    if any(ref.hash == at.hash for ref in context.catalog.list_refs()):
        return
    own = next(iter(context.catalog.history(at.hash)), None)
    if own is not None and not is_kept(context, own.time):
        later = list(context.catalog.history(MAIN, until=at.hash))
        if not later or later[-1].parent != at.hash or not is_kept(context, later[-1].time):
            raise too_old(context, f"Commit {at.hash[:12]}")
    states = list(context.catalog.list_tables(at))
    now = context.catalog.get_tables([state.table for state in states], context.catalog.get_ref(MAIN))
    require_files(context, None, [(now[state.table], state) for state in states])


def require_files(
    context: Context, run: Run | None, states: Sequence[tuple[TablePointer | None, TablePointer]]
) -> None:
    """Check that the files of states exist, so that making them current can't make their tables unreadable.

    Args:
        run: The run that staged the states on its branch; without one or its branch, they're earlier states.
        states: Each with a state whose files are there for sure, if there's one: they aren't looked up.

    Raises:
        ConflictError: Naming the missing files that the run staged.
        InputError: Naming the missing files of an earlier state.
    """
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for (_, state), lost in zip(states, pool.map(lambda pair: _lost_files(context, *pair), states), strict=True):
            if lost is not None:
                raise (
                    _files_gone(state, lost) if run is None or not run.branch else _staged_files_gone(run, state, lost)
                )


def _lost_files(context: Context, before: TablePointer | None, state: TablePointer) -> str | None:
    """Return which files a state lacks, as a sentence; ``None`` if they're all there."""
    if before is not None and before.metadata_location == state.metadata_location:
        return None
    root = f"{canonical(context.warehouse)}/"
    try:
        paths = _new_files(context, before, state)
    except NotFoundError as error:
        return error.message
    # gc deletes nothing outside the warehouse.
    missing = context.reader.missing([path for path in paths if canonical(path).startswith(root)])
    if not missing:
        return None
    more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    return f"{', '.join(sorted(missing)[:_SHOWN])}{more} can't be found."


def _new_files(context: Context, before: TablePointer | None, state: TablePointer) -> list[str]:
    if before is not None:
        with suppress(NotFoundError, InputError):  # if the state before is damaged, look all files up
            return list(context.reader.new_files(before, state))
    return list(context.reader.reach(state))


def _files_gone(state: TablePointer, what: str) -> InputError:
    return InputError(
        f"That state of {state.table} needs files that don't exist any more: {what} Nothing was changed.",
        hint="You can go back as far as gc.keep at most; `lakegate log` shows the commits since then.",
        table=str(state.table),
        path=state.metadata_location,
    )


def _staged_files_gone(run: Run, state: TablePointer, what: str) -> ConflictError:
    again = "Ingest the files again" if run.request is not None else "Write it again"
    return ConflictError(
        f"Branch {run.branch} isn't published: {state.table} needs files there that don't exist any more: {what} "
        "Nothing was published.",
        hint=f"Something else has deleted them, perhaps a clean-up of the object store. {again}, and drop this "
        f"branch: lakegate discard {run.branch}",
        table=str(state.table),
        branch=run.branch,
        run_id=run.run_id,
        path=state.metadata_location,
    )


def _folder(metadata_location: str) -> str:
    return canonical(metadata_location).rpartition("/")[0].removesuffix("/metadata")
