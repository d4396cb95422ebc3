"""The feeds of lakegate keep the contract of every feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.loading.watch import EventFeed, PollingFeed
from lakegate.testing.feed import FeedContract


class TestPollingFeed(FeedContract):
    @pytest.fixture
    def feed(self) -> PollingFeed:
        return PollingFeed(3600)


class TestEventFeed(FeedContract):
    @pytest.fixture
    def feed(self, tmp_path: Path) -> Iterator[EventFeed]:
        feed = EventFeed(lambda: [str(tmp_path)], 3600)
        yield feed
        feed.close()
