"""The facade's part for files that land somewhere: which there are, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakegate.lake.base import LakeBase
from lakegate.model.batch import FileFormat
from lakegate.model.journal import Landing

if TYPE_CHECKING:
    from lakegate.sources.listing import FoundFile


class Arriving(LakeBase):
    """Looks for files, and remembers what became of them."""

    def list_files(
        self,
        paths: Sequence[str],
        *,
        format: FileFormat | None = None,  # noqa: A002 - the word of the command line
    ) -> Iterator[FoundFile]:
        """Yield the files that ``paths`` name, as they are found; none is opened. What is not there is left out.

        Args:
            paths: Files, globs, folders.
            format: Whose endings the files of a folder have; any known format's when ``None``.

        Raises:
            InputError: When a path cannot be one of files, or cannot be looked at.
        """
        from lakegate.sources.listing import list_files  # noqa: PLC0415 - loads pyarrow

        return list_files(paths, format=format, storage=self.settings.storage)

    def landings(self, table: str, uris: Sequence[str]) -> Mapping[str, Landing]:
        """Return by URI what became of files that were to go to ``table``; those never tried are missing.

        Raises:
            RetryableError: When the journal is away.
        """
        return self._wiring.journal.landings(table, uris)

    def note_landings(self, table: str, landings: Sequence[Landing]) -> None:
        """Write down what became of files, each in the place of what was known of its URI.

        Raises:
            RetryableError: When the journal is away.
        """
        self._wiring.journal.note_landings(table, landings)
