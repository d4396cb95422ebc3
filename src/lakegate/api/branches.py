"""``lake.branches``: the branches of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from lakegate.api.refs import resolve_ref
from lakegate.components import Components
from lakegate.errors import NotFoundError
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.refs import MAIN, Ref
from lakegate.model.run import RunLine
from lakegate.model.words import parse_age, suggest_keywords
from lakegate.points import find, require_branch
from lakegate.wap.discard import discard
from lakegate.wap.retention import require_kept


@suggest_keywords
class Branches:
    """The branches of the catalog, whoever made them: ``lake.branches``."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def list(self) -> Sequence[Ref]:
        """Return all branches, ``main`` first."""
        refs = (ref for ref in self._components.catalog.list_refs() if ref.kind == "branch")
        return sorted(refs, key=lambda ref: (ref.name != MAIN, ref.name))

    def runs(self) -> Mapping[str, tuple[RunLine, str | None]]:
        """Return the newest run on each branch that the journal knows, by branch.

        Returns:
            The run and, if it was rejected and tried again, the newest later attempt's run id.
        """
        pages = self._components.journal.pages
        lines = pages.by_branch([ref.name for ref in self.list() if ref.name != MAIN])
        superseded = pages.superseded([line.run_id for line in lines.values() if line.status == "rejected"])
        return {name: (self._with_end(line), superseded.get(line.run_id)) for name, line in lines.items()}

    def _with_end(self, line: RunLine) -> RunLine:
        settings = self._components.settings
        is_limited = settings.catalog.is_target and line.status in ("rejected", "failed")
        if not is_limited or line.finished_at is None:
            return line
        return line.model_copy(update={"branch_until": line.finished_at + parse_age(settings.keep_rejected)})

    def row_counts(self, table: str) -> Sequence[tuple[Ref, int | None]]:
        """Return how many rows a table has on each branch that has it, from metadata alone.

        Args:
            table: ``namespace.table``.

        Returns:
            Branches and their row counts; ``None`` where delete files hide the count.
        """
        identifier = TableIdentifier.parse(table)
        counts: list[tuple[Ref, int | None]] = []
        for ref in self.list():
            pointer = None
            with suppress(NotFoundError):  # the branch was dropped meanwhile
                pointer = self._components.catalog.get_table(identifier, ref)
            if pointer is not None:
                counts.append((ref, self._components.reader.metadata(pointer).rows))
        return counts

    def create(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Create a branch.

        Args:
            name: Name of the branch.
            source: Branch, tag or commit hash to start from.
            at: Time, tag or commit: start from what ``source`` was then. Default: now.

        Returns:
            The branch.

        Raises:
            AlreadyExistsError: A branch or tag of this name exists.
            NotFoundError: ``source`` doesn't exist, or didn't at that time.
            InputError: The name isn't allowed, or the commit is older than ``gc.keep``.

        Example:
            >>> lake.branches.create("experiment").hash == next(lake.log(limit=1)).hash
            True
            >>> lake.branches.delete("experiment").name
            'experiment'
        """
        commit = resolve_ref(self._components, source, at)
        require_kept(self._components.context, commit)
        return self._components.catalog.create_branch(validate_ref_name(name), commit)

    def delete(self, name: str) -> Ref:
        """Delete a branch, and return it as it was.

        Raises:
            NotFoundError: There's no such branch.
            InputError: It's ``main``, a tag or a commit.
        """
        ref = find(self._components.catalog, name)
        require_branch(ref)
        discard(self._components.context, name)
        return ref

    def reset(self, name: str, *, to: str = MAIN, at: str | datetime | None = None, force: bool = False) -> Ref:
        """Point a branch at another commit. Commits that were only on this branch become unreachable.

        Args:
            name: The branch.
            to: Branch, tag or commit hash.
            at: Time, tag or commit: reset to what ``to`` was then. Default: now.
            force: Required for ``main``, whose history loses published runs. :meth:`lakegate.Lake.revert` and
                :meth:`lakegate.Lake.restore_table` keep the history.

        Returns:
            The branch as it is now.

        Raises:
            NotFoundError: There's no such branch, or no such commit.
            InputError: It's a tag, it's ``main`` without ``force``, or the commit is older than ``gc.keep``.
            ConflictError: Somebody committed to it at the same time.

        Example:
            >>> old = lake.branches.create("experiment", at=datetime.now(UTC))
            >>> lake.branches.reset("experiment", to="main").name
            'experiment'
        """
        from lakegate.wap.revert import reset_branch

        return reset_branch(self._components.context, name, resolve_ref(self._components, to, at), force=force)
