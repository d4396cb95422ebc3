"""Files that branches and tags reach, and how to keep the files of an unreachable state while going back to it.

A restore, a revert or a new branch may go back to a state that no branch or tag reaches, so that ``gc`` may be deleting
its files. So both sides announce in the catalog what they're about to do *before* they look for the other
(docs/decisions/0035):

- ``gc`` creates a branch :data:`_COLLECTING`, and commits to the branch :data:`_FLAG`, which says that there is one.
  Then it reads all references before each batch, and deletes.
- A process that goes back creates a branch :data:`_NEEDED` that reaches the old state. Then it looks for a ``gc``,
  checks that the files exist, and commits.

If both happen at the same time, at least one sees the other: ``gc`` keeps the files, or the commit isn't made. The
names of these branches end with the process that created them, so that the next process on the same machine can drop
those of a killed one. Those of a sleeping process stay, because it may wake up and delete files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from posixpath import normpath

from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.journal.holder import ProcessHolder
from lakegate.model.maintenance import GcProblem
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import new_run_id
from lakegate.ports import Step
from lakegate.wap.checkpoints import Needed, digest
from lakegate.wap.context import Context

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes that other programs write for the same objects."""
_COLLECTING = "wap/lakegate.gc/"
_NEEDED = "wap/lakegate.needed/"
_FLAG = "wap/lakegate.collecting"
"""Exists as long as a process deletes files, so that one look-up is enough, however many branches there are.

Each ``gc`` commits to it after creating its own branch. When done, it reads this branch's head, checks that no other
``gc`` has a branch, and drops this one at that head. If another ``gc`` has started since, the head has moved, and the
branch stays.
"""
_ANNOUNCEMENT = re.compile(
    r"wap/lakegate\.(?:gc|needed)/(?P<name>.+?)\.(?P<host>[0-9a-f]{16})\.(?P<pid>\d+)\.(?P<started>[\d.]+)"
)
"""The name of an announcing branch: its purpose, such as a revert's run id and a number, and the process."""
_COUNTER = re.compile(r"\.[0-9a-f]{8}$")
_IN_FORCE: set[str] = set()
"""This process's announcements. Others in its name are leftovers: the catalog didn't answer when they were created or
dropped."""
_PATIENCE_S = 5.0
_POLL_S = 0.2
_TABLES_AT_ONCE = 8
_ATTEMPTS = 20
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
        self._past: Collection[str] = ()  # the checkpoint's commits
        self._states: set[str] = set()  # commits of which all tables were added
        self._walked: set[str] = set()  # metadata files that were read
        self._folders: dict[str, set[str]] = {}  # by the table's name
        self._names: dict[str, set[str]] = {}  # by the table's content id
        self._foreign: set[str] = set()  # folders of views and other content
        self._unreadable: dict[str, GcProblem] = {}  # by the table's name

    def begin(
        self, past: Collection[str], foreign: Iterable[str], needed: Needed | None, digests: Collection[bytes]
    ) -> None:
        """Start with the commits in a checkpoint of ``main``.

        Args:
            past: Hashes of its commits.
            foreign: Folders of views and other content that they put.
            needed: The files that they need, which count as found. Without it, their states are added like any others.
            digests: Digests of these files.
        """
        self._past = past
        self._foreign.update(foreign)
        if needed is not None:
            self._commits.update(past)
            self._walked = _Walked(digests)
            self._folders = {name: set(folders) for name, folders in needed.folders.items()}
            self._names = {content_id: set(names) for content_id, names in needed.names.items()}

    def known(self) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]], tuple[str, ...]]:
        """Return the folders of each table, its names, and the folders of views and other content."""
        folders = {name: tuple(sorted(found)) for name, found in self._folders.items()}
        names = {content_id: tuple(sorted(found)) for content_id, found in self._names.items()}
        return folders, names, tuple(sorted(self._foreign))

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
            if commit.hash in self._commits or (beyond and commit.hash in self._past):
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


class _Walked(set[str]):
    """The metadata files that were read, including those that were read for the checkpoint.

    Args:
        digests: Digests of the checkpoint's files.
    """

    def __init__(self, digests: Collection[bytes]) -> None:
        super().__init__()
        self._digests = digests

    def __contains__(self, path: object) -> bool:
        return super().__contains__(path) or (isinstance(path, str) and digest(canonical(path)) in self._digests)


@contextmanager
def announce_gc(context: Context) -> Iterator[None]:
    """Announce that the body deletes files."""
    name = _announcement(_COLLECTING, new_run_id())
    with _in_force(name):
        marker = context.catalog.create_branch(name, context.catalog.get_ref(MAIN))
        try:
            _raise_flag(context, marker)
            yield
        finally:
            try:
                with suppress(NotFoundError):
                    context.catalog.delete_ref(marker)
            except LakegateError as error:
                context.narrator.note(
                    f"Couldn't drop branch {marker.name}, which announces that gc deletes files: {error.message} "
                    f"Nothing can be restored until you drop it: lakegate branch delete {marker.name}"
                )
            with suppress(LakegateError):  # by itself, the flag blocks nobody, and the next gc drops it
                _lower_flag(context)


@contextmanager
def keep_files(context: Context, at: Ref, name: str, request: CommitRequest | None = None) -> Iterator[None]:
    """Keep the files of a state while the body makes a reference reach it.

    Args:
        at: The commit whose tables to keep; with a ``request``, the commit that it's based on.
        name: What they're kept for, such as a run's id.
        request: A commit to make, whose tables to keep instead.

    Raises:
        RetryableError: While a ``gc`` deletes any files.
        InputError: When files of the state don't exist any more.
    """
    branch = _announcement(_NEEDED, name)
    with _in_force(branch):
        context.catalog.create_branch(branch, at)
        try:
            if request is not None:
                on_branch = {"branch": branch, "base": at.hash, "properties": {}, "at_head": False}
                try:
                    context.catalog.commit(request.model_copy(update=on_branch))
                except OutcomeUnknownError as error:
                    # The outcome on this branch doesn't matter: the actual change hasn't begun.
                    raise CatalogUnavailableError(f"{error.message} Nothing was changed.", hint="Try again.") from error
            require_no_gc(context)
            _require_files(context, context.catalog.list_tables(at) if request is None else request.puts)
            yield
        finally:
            # If the catalog is unavailable now, the branch stays; it only keeps files.
            with suppress(LakegateError):
                context.catalog.delete_ref(context.catalog.get_ref(branch))


@contextmanager
def keep_files_of(context: Context, commit: Ref) -> Iterator[None]:
    """Keep a commit's files while the body makes a reference to it. Files of ``main``'s head are safe anyway."""
    if context.catalog.get_ref(MAIN).hash == commit.hash:
        yield
        return
    with keep_files(context, commit, new_run_id()):
        yield


def drop_orphaned_announcements(context: Context) -> None:
    """Drop the announcements of dead processes, and of runs that have ended."""
    refs = list(context.catalog.list_refs())
    orphaned = [ref for ref in refs if _is_orphaned(ref) or _has_ended(context, _needed_for(ref))]
    if any(ref.name.startswith(_COLLECTING) for ref in orphaned):
        time.sleep(_PATIENCE_S)  # deletions that a killed gc sent to an object store may still be on their way
    for ref in orphaned:
        with suppress(NotFoundError):
            context.catalog.delete_ref(ref)
    if any(ref.name == _FLAG for ref in refs):
        _lower_flag(context)


def drop_announcements_of(context: Context, run_id: str) -> None:
    """Drop the announcements of a run that has ended; its process died before it could."""
    for ref in context.catalog.list_refs():
        if _needed_for(ref) == run_id:
            with suppress(NotFoundError):
                context.catalog.delete_ref(ref)


def _raise_flag(context: Context, marker: Ref) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(AlreadyExistsError):
            context.catalog.create_branch(_FLAG, marker)
        try:
            base = context.catalog.get_ref(_FLAG).hash
            request = CommitRequest(branch=_FLAG, base=base, message=f"{marker.name} deletes files", at_head=True)
            context.catalog.commit(request)
        except (ConflictError, NotFoundError):
            continue  # another gc started or ended at the same moment
        except OutcomeUnknownError as error:
            raise CatalogUnavailableError(f"{error.message} No file was deleted.", hint="Try again.") from error
        return
    raise RetryableError(
        f"Couldn't announce that gc deletes files, because branch {_FLAG} kept moving. No file was deleted.",
        hint="Try again.",
        branch=_FLAG,
    )


def _lower_flag(context: Context) -> None:
    with suppress(ConflictError, NotFoundError):
        flag = context.catalog.get_ref(_FLAG)
        if _first_marker(context) is None:
            context.catalog.delete_ref(flag)


def _first_marker(context: Context) -> Ref | None:
    return next((ref for ref in context.catalog.list_refs() if ref.name.startswith(_COLLECTING)), None)


def _marker_of_gc(context: Context) -> Ref | None:
    """Return the branch of a ``gc`` that is deleting files."""
    try:
        context.catalog.get_ref(_FLAG)
    except NotFoundError:
        return None
    return _first_marker(context)


def _announcement(prefix: str, name: str) -> str:
    return f"{prefix}{name}.{ProcessHolder().identity().replace(':', '.')}"


@contextmanager
def _in_force(announcement: str) -> Iterator[None]:
    _IN_FORCE.add(announcement)
    try:
        yield
    finally:
        _IN_FORCE.discard(announcement)


def _is_orphaned(ref: Ref) -> bool:
    """Return whether the process that created the branch is done with it or dead, as far as this machine knows."""
    announcement = _ANNOUNCEMENT.fullmatch(ref.name)
    if announcement is None:
        return False
    holder = ":".join(announcement.group("host", "pid", "started"))
    if holder == ProcessHolder().identity():
        return ref.name not in _IN_FORCE
    return ProcessHolder().is_alive(holder) is False


def _needed_for(ref: Ref) -> str | None:
    """Return what a branch keeps files for, such as a run's id; ``None`` if it keeps none."""
    if not ref.name.startswith(_NEEDED):
        return None
    announcement = _ANNOUNCEMENT.fullmatch(ref.name)
    return _COUNTER.sub("", announcement["name"] if announcement else ref.name.removeprefix(_NEEDED))


def _has_ended(context: Context, run_id: str | None) -> bool:
    run = None if run_id is None else context.journal.get(run_id)
    return run is not None and run.finished_at is not None


def require_no_gc(context: Context) -> None:
    """Wait a moment for a garbage collection that is deleting files, and raise if it isn't done."""
    until = time.monotonic() + _PATIENCE_S
    while marker := _marker_of_gc(context):
        if time.monotonic() < until:
            time.sleep(_POLL_S)
        elif _is_orphaned(marker):
            # We've waited as long as drop_orphaned_announcements does, for the same reason.
            with suppress(NotFoundError):
                context.catalog.delete_ref(marker)
            _lower_flag(context)
        else:
            since = marker.name.removeprefix(_COLLECTING).partition("-")[0]
            raise RetryableError(
                f"`lakegate gc` is deleting files (since {since} UTC), perhaps those that are needed here. "
                "Nothing was changed.",
                hint=f"Try again when it's done. If no gc is running: lakegate branch delete {marker.name}",
                branch=marker.name,
            )


def _require_files(context: Context, states: Iterable[TablePointer]) -> None:
    states = list(states)
    now = context.catalog.get_tables([state.table for state in states], context.catalog.get_ref(MAIN))
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        list(pool.map(lambda state: _require_files_of(context, state, now.get(state.table)), states))


def _require_files_of(context: Context, state: TablePointer, now: TablePointer | None) -> None:
    """Check that the files of one state exist, except those that the table needs on ``main`` anyway."""
    if now is not None and now.metadata_location == state.metadata_location:
        return
    walked: set[str] = set()
    there: set[str] = set()
    if now is not None:
        # If the table's current state can't be read, check all files.
        with suppress(LakegateError):
            there.update(map(canonical, context.reader.reach(now, walked)))
    root = f"{canonical(context.warehouse)}/"
    try:
        needed = {path: canonical(path) for path in context.reader.reach(state, walked)}
    except NotFoundError as error:
        raise _files_gone(state, error.message) from error
    # gc deletes nothing outside the warehouse.
    missing = context.reader.missing(
        [path for path, one in needed.items() if one not in there and one.startswith(root)]
    )
    if missing:
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        raise _files_gone(state, f"{', '.join(sorted(missing)[:_SHOWN])}{more} can't be found.")


def _files_gone(state: TablePointer, what: str) -> InputError:
    return InputError(
        f"That state of {state.table} needs files that don't exist any more: {what} Nothing was changed.",
        hint="You can only go back as far as gc.history keeps files; `lakegate log` shows the commits since then.",
        table=str(state.table),
        path=state.metadata_location,
    )


def _folder(metadata_location: str) -> str:
    return canonical(metadata_location).rpartition("/")[0].removesuffix("/metadata")
