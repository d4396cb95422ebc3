"""Source files: find them, check them, and describe them as one batch; also, generate files for tests and demos.

``local`` and ``remote`` resolve paths to files, ``inspection`` detects their format, and a module per format reads
their columns. To add a format, see "Add something" in CONTRIBUTING.md.
"""

from __future__ import annotations

from lakegate.sources.discovery import changed_files, discover
from lakegate.sources.files import from_uri, to_uri
from lakegate.sources.synthetic import generate

__all__ = ["changed_files", "discover", "from_uri", "generate", "to_uri"]
