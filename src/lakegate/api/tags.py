"""``lake.tags``: names of commits that never move."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lakegate.api.refs import resolve_ref
from lakegate.components import Components
from lakegate.errors import InputError
from lakegate.model.identifiers import validate_ref_name
from lakegate.model.refs import MAIN, Ref
from lakegate.model.words import suggest_keywords
from lakegate.points import find
from lakegate.wap.retention import require_kept


@suggest_keywords
class Tags:
    """Names of commits that never move: ``lake.tags``."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def list(self) -> Sequence[Ref]:
        """Return all tags, by name."""
        refs = (ref for ref in self._components.catalog.list_refs() if ref.kind == "tag")
        return sorted(refs, key=lambda ref: ref.name)

    def create(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Give a commit a name that never moves.

        Args:
            name: Name of the tag.
            source: Branch, tag or commit hash.
            at: Time, tag or commit: tag what ``source`` was then. Default: now.

        Returns:
            The tag.

        Raises:
            AlreadyExistsError: A branch or tag of this name exists.
            NotFoundError: ``source`` doesn't exist, or didn't at that time.
            InputError: The name isn't allowed, or the commit is older than ``gc.keep``.

        Example:
            >>> tag = lake.tags.create("release-1")
            >>> lake.table("nyc.trips", ref="release-1").rows
            100
        """
        commit = resolve_ref(self._components, source, at)
        require_kept(self._components.context, commit)
        return self._components.catalog.create_tag(validate_ref_name(name), commit)

    def delete(self, name: str) -> Ref:
        """Delete a tag, and return it as it was. The commit stays in the history of branches.

        Raises:
            NotFoundError: There's no such tag.
            InputError: It's a branch.
        """
        ref = find(self._components.catalog, name)
        if ref.kind != "tag":
            raise InputError(f"'{name}' isn't a tag.", hint="lakegate tag list", ref=name)
        self._components.catalog.delete_ref(ref)
        return ref
