"""The facade's part that changes references, and undoes."""

# ruff: noqa: PLC0415 - an ingest, whose start is waited for, needs none of the undoing

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lakegate.errors import InputError
from lakegate.flow.discard import discard
from lakegate.flow.history import sync
from lakegate.lake.base import MAIN, LakeBase
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.refs import Ref
from lakegate.model.run import Run, new_run_id


class Changing(LakeBase):
    """Moves references, and undoes."""

    def revert(self, run: str, *, cascade: bool = False, dry_run: bool = False) -> Run:
        """Undo what a run published, in one commit across its tables; later publishes stay.

        Its source files may be ingested again.

        Args:
            run: Its id, or the beginning of it.
            cascade: Undo the runs, too, that depend on it.
            dry_run: Change nothing; return what would be done.

        Returns:
            The undoing, which is a run of its own: ``reverts`` names the runs undone, ``undone`` what that did to their
            tables. ``skipped`` for a dry run.

        Raises:
            NotRevertableError: When other runs depend on it, or its data was changed since by others than lakegate.
            InputError: When there is no such run, it was not published, or it was undone before.
            RetryableError: When catalog or journal are away, or ``main`` never stood still. Nothing was changed.
            OutcomeUnknownError: When the catalog went away with the commit.
        """
        from lakegate.flow.revert import revert

        sync(self._wiring.rooms, MAIN)
        run_id = self._find_run(run).run_id
        return revert(
            self._wiring.rooms, run_id, new_run_id=new_run_id(), target=MAIN, cascade=cascade, dry_run=dry_run
        )

    def restore_table(self, table: str, *, at: str | datetime) -> Run:
        """Put a table on ``main`` back as it was at a time or commit, whoever changed it since, in one new commit.

        The source files that it loses thereby may be ingested again; those that it regains count as published.

        Args:
            table: ``namespace.table``; it may have been dropped since.
            at: Commit hash, or time (aware, or taken as UTC; text in ISO 8601).

        Returns:
            The restoring, which is a run of its own; ``skipped`` when the table stands so already.

        Raises:
            NotFoundError: When there was no such table then.
            InputError: When the commit is not in the history of ``main``.
            RetryableError: When catalog or journal are away, or ``main`` never stood still. Nothing was changed.
            OutcomeUnknownError: When the catalog went away with the commit.
        """
        identifier = TableIdentifier.parse(table)
        from lakegate.flow.restore import restore_table

        return restore_table(self._wiring.rooms, identifier, self._resolve(MAIN, at), new_run_id=new_run_id())

    def create_branch(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Create a branch at ``source``, as it stands or stood ``at`` a time or commit.

        Raises:
            AlreadyExistsError: When there is one of this name.
        """
        return self._wiring.catalog.create_branch(validate_ref_name(name), self._resolve(source, at))

    def delete_branch(self, name: str) -> Ref:
        """Delete a branch, whoever made it.

        Raises:
            NotFoundError: When there is none.
            InputError: When it is ``main``.
        """
        ref = self._wiring.catalog.get_ref(name)
        discard(self._wiring.rooms, name)
        return ref

    def reset_branch(self, name: str, *, to: str = MAIN, at: str | datetime | None = None, force: bool = False) -> Ref:
        """Point a branch at the commit where ``to`` stands, or stood ``at`` a time or commit.

        What was committed only to the branch is reached by it no more.

        Args:
            name: The branch.
            to: Branch, tag or commit hash.
            at: Commit hash or time, as for :meth:`query`.
            force: Needed for ``main``: it loses published runs from its history. :meth:`revert` and
                :meth:`restore_table` keep the history.

        Raises:
            NotFoundError: When there is no such branch.
            InputError: When it is a tag, or is ``main`` without ``force``.
            ConflictError: When something was committed to it at this very moment.
        """
        from lakegate.flow.restore import reset_branch

        return reset_branch(self._wiring.rooms, name, self._resolve(to, at), force=force)

    def tags(self) -> Sequence[Ref]:
        """Return all tags, by name."""
        refs = (ref for ref in self._wiring.catalog.list_refs() if ref.kind == "tag")
        return sorted(refs, key=lambda ref: ref.name)

    def create_tag(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Give a name to the commit where ``source`` stands, or stood ``at`` a time or commit.

        Raises:
            AlreadyExistsError: When there is a branch or tag of this name.
        """
        return self._wiring.catalog.create_tag(validate_ref_name(name), self._resolve(source, at))

    def delete_tag(self, name: str) -> Ref:
        """Delete a tag; the commit that it named stays where it is in the history of branches.

        Raises:
            NotFoundError: When there is none.
            InputError: When it is a branch.
        """
        ref = self._wiring.catalog.get_ref(name)
        if ref.kind != "tag":
            raise InputError(f"'{name}' is not a tag.", hint="lakegate tag list", ref=name)
        self._wiring.catalog.delete_ref(ref)
        return ref
