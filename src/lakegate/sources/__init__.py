"""Source files: find them, check them, describe them as one batch; and generate files for tests and demos.

``local`` and ``remote`` turn paths into files, ``inspection`` finds out their format, ``parquet`` and ``csv`` read
their columns. To add a format, see "Add something" in CONTRIBUTING.md.
"""

from __future__ import annotations

from lakegate.sources.discovery import changed_files, discover
from lakegate.sources.files import from_uri, to_uri
from lakegate.sources.synthetic import generate

__all__ = ["changed_files", "discover", "from_uri", "generate", "to_uri"]
