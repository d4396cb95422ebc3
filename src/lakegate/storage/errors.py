"""What storage says of a file that Python has no exception for."""

from __future__ import annotations


class ReplacedError(OSError):
    """The file has other content than when it was found."""
