"""State that all visitors share: one lake, opened without Spark, the access rules, and their running actions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import streamlit as st

from lakegate.dashboard.ui.access import Access, Visitor
from lakegate.wap.review import this_actor

if TYPE_CHECKING:
    from lakegate.dashboard.model import ReadModel
    from lakegate.lake import Lake

_PARALLEL_ACTIONS = 8


@dataclass(frozen=True)
class Shared:
    """The lake, read model, access rules and running actions that all pages and threads share.

    Attributes:
        actions: Runs the actions, so that they end even if their window is closed.
    """

    lake: Lake
    model: ReadModel
    access: Access
    actions: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_PARALLEL_ACTIONS, thread_name_prefix="lakegate-action")
    )


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


def actor() -> str:
    """Return the name to record for the visitor's actions."""
    return current_visitor().name or this_actor()
