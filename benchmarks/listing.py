"""Looking through a bucket: the memory that it takes for 100 thousand keys, against one thousand, a page of them."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders

from benchmarks.harness import Figure, progress
from lakegate.config import S3Settings, StorageSettings
from lakegate.sources.discovery import list_files
from lakegate.storage.s3 import s3_client

_PAGE = 1000  # as S3 itself
STORAGE = StorageSettings(s3=S3Settings(endpoint="http://127.0.0.1:9", region="us-east-1", path_style=True))
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


def measure() -> Iterator[Figure]:
    """Yield the ratio of the two peaks."""
    with mock.patch.dict(os.environ, CREDENTIALS):
        few, many = _peak_bytes(_PAGE), _peak_bytes(100 * _PAGE)
    detail = f"{many / 1e6:.1f} MB / {few / 1e6:.1f} MB"
    yield Figure("listing, memory of 100k keys / 1k keys", many / few, 1.25, detail)


def _peak_bytes(count: int) -> int:
    """Return how many bytes of Python's a listing of ``count`` keys takes at most."""
    events = s3_client(STORAGE.s3).meta.events
    source = Pages(count)
    events.register("before-send.s3.ListObjectsV2", source.answer)
    try:
        next(list_files(["s3://landing/in/"], storage=STORAGE))  # what is loaded once
        tracemalloc.start()
        assert sum(1 for _ in list_files(["s3://landing/in/"], storage=STORAGE)) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        events.unregister("before-send.s3.ListObjectsV2", source.answer)
    progress(f"{count:,} keys")
    return peak


class Pages:
    """Answers for S3, from the pages of a bucket that nobody ever filled."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.answered = 0

    def answer(self, request: AWSPreparedRequest, **_: object) -> Any:
        """Answer one call of ListObjectsV2."""
        self.answered += 1
        asked = parse_qs(urlsplit(request.url).query)
        start = int(asked.get("continuation-token", ["0"])[0])
        end = min(start + _PAGE, self._count)
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < self._count else ""
        entries = (
            f"<Contents><Key>in/day={at // 500}/part-{at:08}.parquet</Key><Size>1048576</Size>"
            f"<LastModified>2026-01-31T07:00:00.000Z</LastModified><ETag>&quot;{at:032x}&quot;</ETag></Contents>"
            for at in range(start, end)
        )
        cut = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}"
        body = f"<ListBucketResult>{cut}{''.join(entries)}</ListBucketResult>"
        return AWSResponse(request.url, 200, HTTPHeaders(), _Raw(body.encode()))


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body
