"""State that all visitors share: one lake, opened without Spark, the access rules, and the actions that they started.

Actions belong to the lake, not to the window. They continue if the window is closed, and their visitor sees the outcome
in any other window.
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
"""Session state key, set while a redraw would hide a dialog or an action's progress."""
_WAIT_S = 0.2
_MAX_ENDED = 200
"""Maximum number of ended actions to keep, for all visitors, until somebody has seen their outcome."""
_log = get_logger(__name__)


class Actions:
    """Actions of all visitors that are running, or whose outcome hasn't been seen. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: list[BackgroundAction] = []

    def add(self, work: BackgroundAction) -> None:
        """Add an action. It stays until its outcome has been seen."""
        with self._lock:
            ended = [one for one in self._works if one.is_done]
            forgotten = ended[: max(len(ended) - _MAX_ENDED + 1, 0)]
            self._works = [*(one for one in self._works if one not in forgotten), work]

    def of(self, actor: str) -> tuple[BackgroundAction, ...]:
        """Return a visitor's running actions and unseen outcomes, oldest first."""
        with self._lock:
            return tuple(work for work in self._works if work.actor == actor)

    def seen(self, work: BackgroundAction) -> None:
        """Forget an action whose outcome has been seen."""
        with self._lock:
            self._works = [one for one in self._works if one is not work]

    def under_way(self) -> tuple[BackgroundAction, ...]:
        """Return the running actions of all visitors."""
        with self._lock:
            return tuple(work for work in self._works if not work.is_done)


@dataclass(frozen=True)
class Shared:
    """The lake, read model, access rules and actions that all pages and threads share."""

    lake: Lake
    model: ReadModel
    access: Access
    actions: Actions = field(default_factory=Actions)


_shared: Shared | None = None


def share(shared: Shared | None) -> None:
    """Set the shared state of this process's pages. Streamlit reruns their script for each visitor and click."""
    global _shared  # noqa: PLW0603 - Streamlit offers scripts no other place for it
    _shared = shared


def shared() -> Shared:
    """Return the shared state."""
    if _shared is None:
        raise RuntimeError("Start the dashboard with `lakegate ui`.")
    return _shared


def current_visitor() -> Visitor:
    """Return the visitor, with what they may do."""
    return shared().access.visitor(st.user)


@dataclass(eq=False)
class BackgroundAction:
    """An action, running or ended.

    Attributes:
        action: ``publish``, ``accept``, ``discard``, ``release``, ``drop`` or ``revert``.
        about: The branch, table or run that it changes.
        run: Its run, once it succeeded.
    """

    action: str
    about: str
    actor: str
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run: Run | None = None
    error: str | None = None
    hint: str | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def begin(self, do: Callable[[], Run | None]) -> BackgroundAction:
        """Run ``do`` in a new thread, and return at once."""
        known = shared()
        known.actions.add(self)
        # A daemon thread: the server waits for it itself, unless it gets a second stop signal.
        threading.Thread(target=self._work, args=(do, known.model), name=f"lakegate-{self.action}", daemon=True).start()
        return self

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._done.is_set()

    def ended(self, timeout_s: float) -> bool:
        """Wait for its end up to ``timeout_s``. Return whether it has ended."""
        return self._done.wait(timeout_s)

    def wait(self, label: str) -> None:
        """Wait for its end. If the window is closed, Streamlit stops the page here."""
        with st.spinner(f"{label}: it continues if you close this window.", show_time=True):
            while not self._done.wait(_WAIT_S):
                pass

    def _work(self, do: Callable[[], Run | None], model: ReadModel) -> None:
        try:
            self.run = do()
        except LakegateError as error:
            self.error, self.hint = error.message, error.hint
        except Exception as error:  # noqa: BLE001 - the visitor must see any failure
            self.error = f"Internal error: {type(error).__name__}."
            self.hint = "This is a bug in lakegate. The terminal of `lakegate ui` has the details."
            _log.exception("an action failed", action=self.action, about=self.about, actor=self.actor)
        finally:
            model.refresh()
            outcome = self.error or "done"
            _log.info("action", action=self.action, about=self.about, actor=self.actor, outcome=outcome)
            self._done.set()


def actor() -> str:
    """Return the name to record for the visitor's actions."""
    return current_visitor().name or this_actor()
