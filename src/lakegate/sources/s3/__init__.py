"""Source files on S3 and on stores that speak its language.

``client`` makes the connection and says in our words what S3 says, ``pattern`` tells which keys a text means,
``objects`` looks at and reads single objects, ``listing`` finds them.
"""

from __future__ import annotations

from lakegate.sources.s3.client import s3_place
from lakegate.sources.s3.listing import is_s3, overlap, present, resolve
from lakegate.sources.s3.objects import locate

__all__ = ["is_s3", "locate", "overlap", "present", "resolve", "s3_place"]
