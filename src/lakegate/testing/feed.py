"""The contract of every feed of ``lakegate watch``, as pytest tests: waiting, waking, acknowledging and closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lakegate.loading.watch import Feed


class FeedContract:
    """The behaviour that lakegate expects of every feed.

    Subclass it, name the class ``Test…``, and override the fixture ``feed``. No files may arrive during the tests.
    """

    @pytest.fixture
    def feed(self) -> Iterator[Feed]:
        """Return the feed under test. Override it."""
        raise NotImplementedError("Override the fixture 'feed' so that it returns the feed to test.")

    def test_a_wait_ends_after_its_timeout(self, feed: Feed) -> None:
        feed.wait(0.0)
        began = time.monotonic()
        found = feed.wait(0.2)
        assert found is not None
        assert not found
        assert 0.1 < time.monotonic() - began < 5.0

    def test_another_thread_ends_a_wait_at_once(self, feed: Feed) -> None:
        feed.wait(0.0)
        threading.Timer(0.1, feed.wake).start()
        began = time.monotonic()
        feed.wait(30.0)
        assert time.monotonic() - began < 10.0

    def test_waking_before_a_wait_is_not_lost(self, feed: Feed) -> None:
        feed.wait(0.0)
        feed.wake()
        began = time.monotonic()
        feed.wait(30.0)
        assert time.monotonic() - began < 10.0

    def test_files_that_were_never_named_can_be_acknowledged(self, feed: Feed) -> None:
        feed.acknowledge(["file:///never/named.csv"])
        feed.acknowledge([])

    def test_closing_twice_is_fine(self, feed: Feed) -> None:
        feed.close()
        feed.close()
