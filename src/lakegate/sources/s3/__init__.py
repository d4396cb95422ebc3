"""Source files on S3 and on stores that speak its language.

``pattern`` tells which keys a text means, ``objects`` looks at and reads single objects, ``listing`` finds them.
"""

from __future__ import annotations

from lakegate.sources.s3.listing import is_s3, overlap, present, resolve
from lakegate.sources.s3.objects import locate

__all__ = ["is_s3", "locate", "overlap", "present", "resolve"]
