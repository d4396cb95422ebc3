"""Source files in object stores: S3, Google Cloud Storage, Azure Data Lake Storage.

``pattern`` tells which keys a text means, ``objects`` looks at and reads single objects, ``listing`` finds them.
"""

from __future__ import annotations

from lakegate.sources.remote.listing import overlap, present, resolve
from lakegate.sources.remote.objects import locate, stamp_now
from lakegate.storage.addresses import is_remote

__all__ = ["is_remote", "locate", "overlap", "present", "resolve", "stamp_now"]
