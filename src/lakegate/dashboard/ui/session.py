"""What all visitors share: one lake, opened without Spark, and what is allowed with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from lakegate.dashboard.ui.access import Access, Visitor

if TYPE_CHECKING:
    from lakegate.dashboard.model import ReadModel
    from lakegate.lake import Lake


@dataclass(frozen=True)
class Shared:
    """What the pages work with.

    Attributes:
        lake: The lake. Threads share it.
        model: What the pages read.
        access: Who may come in, and who may act.
    """

    lake: Lake
    model: ReadModel
    access: Access


_shared: Shared | None = None


def share(shared: Shared | None) -> None:
    """Set what the pages of this process work with; Streamlit runs their script anew for each visitor and click."""
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
