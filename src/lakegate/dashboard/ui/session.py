"""What all visitors share: one lake, opened without Spark, and what is allowed with it; and the work they began.

That belongs to the lake and not to the window: it continues if the window is closed, and its visitor sees in any other
how it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import streamlit as st
from structlog.stdlib import get_logger

from lakegate.dashboard.ui.access import Access, Visitor
from lakegate.errors import LakegateError
from lakegate.model.run import Run
from lakegate.wap.review import this_actor

if TYPE_CHECKING:
    from lakegate.dashboard.model import ReadModel
    from lakegate.lake import Lake

BUSY = "lg-busy"
"""Key of the session's state that is set while redrawing the page would hide what's under way."""
_WAIT_S = 0.2
_KEPT = 200
"""Actions whose end nobody has seen yet that are remembered, of all visitors."""
_log = get_logger(__name__)


class Actions:
    """What visitors began: what is under way, and what has ended without its visitor having seen how. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: list[Work] = []

    def add(self, work: Work) -> None:
        """Remember an action until its visitor has seen how it ended."""
        with self._lock:
            ended = [one for one in self._works if one.is_done]
            forgotten = ended[: max(len(ended) - _KEPT + 1, 0)]
            self._works = [*(one for one in self._works if one not in forgotten), work]

    def of(self, actor: str) -> tuple[Work, ...]:
        """Return what is under way for a visitor, and what ended unseen, in the order in which it began."""
        with self._lock:
            return tuple(work for work in self._works if work.actor == actor)

    def seen(self, work: Work) -> None:
        """Forget an action: its visitor has seen how it ended."""
        with self._lock:
            self._works = [one for one in self._works if one is not work]

    def under_way(self) -> tuple[Work, ...]:
        """Return what is under way, for all visitors."""
        with self._lock:
            return tuple(work for work in self._works if not work.is_done)


@dataclass(frozen=True)
class Shared:
    """What the pages work with. Threads share the lake."""

    lake: Lake
    model: ReadModel
    access: Access
    actions: Actions = field(default_factory=Actions)


_shared: Shared | None = None


def share(shared: Shared | None) -> None:
    """Set what the pages of this process work with; Streamlit runs their script again for each visitor and click."""
    global _shared  # noqa: PLW0603 - Streamlit gives a script nothing else to hold on to
    _shared = shared


def shared() -> Shared:
    """Return what the pages work with."""
    if _shared is None:
        raise RuntimeError("The dashboard is started by `lakegate ui`.")
    return _shared


def current_visitor() -> Visitor:
    """Return who looks at the page, and what they may do."""
    return shared().access.visitor(st.user)


@dataclass(eq=False)
class Work:
    """One action under way, or ended.

    Attributes:
        action: What is done: ``publish``, ``accept``, ``discard``, ``release``, ``drop`` or ``revert``.
        run: What it came to, once it ended well.
    """

    action: str
    about: str
    actor: str
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run: Run | None = None
    error: str | None = None
    hint: str | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def begin(self, do: Callable[[], Run | None]) -> Work:
        """Do it in a thread of its own, and return at once."""
        known = shared()
        known.actions.add(self)
        # A daemon: the server waits for it, unless it's told twice to stop.
        threading.Thread(target=self._work, args=(do, known.model), name=f"lakegate-{self.action}", daemon=True).start()
        return self

    @property
    def is_done(self) -> bool:
        """Whether it ended, well or not."""
        return self._done.is_set()

    def ended(self, timeout_s: float) -> bool:
        """Wait for its end for a while; return whether it has ended."""
        return self._done.wait(timeout_s)

    def wait(self, label: str) -> None:
        """Wait for its end; Streamlit stops the page here if the window is closed."""
        with st.spinner(f"{label}: it continues if you close this window.", show_time=True):
            while not self._done.wait(_WAIT_S):
                pass

    def _work(self, do: Callable[[], Run | None], model: ReadModel) -> None:
        try:
            self.run = do()
        except LakegateError as error:
            self.error, self.hint = error.message, error.hint
        except Exception as error:  # noqa: BLE001 - the visitor must hear of it, whatever it is
            self.error = f"Internal error: {type(error).__name__}."
            self.hint = "This is a bug in lakegate. The terminal of `lakegate ui` has the details."
            _log.exception("an action failed", action=self.action, about=self.about, actor=self.actor)
        finally:
            model.forget()
            outcome = self.error or "done"
            _log.info("action", action=self.action, about=self.about, actor=self.actor, outcome=outcome)
            self._done.set()


def actor() -> str:
    """Return who is recorded for what the visitor does."""
    return current_visitor().name or this_actor()
