"""Source files: find them, check them, describe them as one batch; and make up files for tests and demos.

One module a job: ``paths`` turns what the user typed into files, ``formats`` tells parquet from CSV, ``parquet`` and
returns an :class:`~lakegate.sources.inspection.Inspection` for a file, one entry in ``formats``, and one line in
``discovery``.
"""

from __future__ import annotations

from lakegate.sources.discovery import discover
from lakegate.sources.paths import from_uri, to_uri
from lakegate.sources.synthetic import generate
from lakegate.sources.versions import changed_files

__all__ = ["changed_files", "discover", "from_uri", "generate", "to_uri"]
