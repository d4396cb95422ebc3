"""What visitors can do to a branch: publish it, accept it with a reason, discard it; each after they confirm it.

An action belongs to the lake and not to the window: it ends what it began even if the window is closed meanwhile. Two
windows that publish one branch at once are two commands that do: the run's lease lets one of them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.branches import BranchOverview
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.session import current_visitor, shared
from lakegate.dashboard.ui.work import BUSY, Work, actor
from lakegate.model.run import Run

Kind = Literal["publish", "accept", "discard"]
_LONGEST_REASON = 1_000
_TITLES: Mapping[Kind, str] = {
    "publish": "Publish this branch?",
    "accept": "Publish although its audit failed?",
    "discard": "Discard this branch?",
}
_ABOUT: Mapping[Kind, str] = {
    "publish": "Its tables appear on main in one commit. What isn't audited yet is audited first.",
    "accept": "Rows that failed their checks appear on main. The commit, the journal and the alert name you and your "
    "reason.",
    "discard": "The branch goes, with all that was written to it. main doesn't change.",
}
_LABELS: Mapping[Kind, str] = {"publish": "Publish", "accept": "Accept and publish", "discard": "Discard"}


def offer_actions(one: BranchOverview) -> None:
    """Put the buttons of a branch on the page, if the visitor may act."""
    if not current_visitor().may_act:
        return
    rejected = one.run is not None and one.run.status == "rejected"
    kinds: tuple[Kind, ...] = ("accept", "discard") if rejected else ("publish", "discard")
    with st.container(horizontal=True, gap="small"):
        for kind in kinds:
            label = _LABELS[kind] + ("" if kind == "discard" else " …")
            if st.button(label, key=f"lg-{kind}-{one.branch}", type="secondary"):
                st.session_state[BUSY] = True
                _confirm(kind, one)


def show_outcome() -> bool:
    """Say how the visitor's last action ended, once.

    Returns:
        Whether one did what it should, so that its branch is gone.
    """
    ended: Work | None = st.session_state.pop("lg-ended", None)
    if ended is None:
        return False
    branch = markup.code(ended.about)
    if ended.error is not None:
        parts.trouble(ended.error, ended.hint, tone="bad")
    elif ended.action == "discard":
        parts.html(Markup('<div class="todo off">{} {}</div>').format(markup.badge("discarded"), branch))
    elif ended.run is not None:
        parts.html(
            Markup('<div class="todo live">{} {} in {}</div>').format(
                markup.badge("published"), branch, markup.run_link(ended.run.run_id)
            )
        )
    return ended.error is None


def _confirm(kind: Kind, one: BranchOverview) -> None:
    @st.dialog(_TITLES[kind], on_dismiss=_end_dialog)
    def ask() -> None:
        _ask(kind, one)

    ask()


def _ask(kind: Kind, one: BranchOverview) -> None:
    work: Work | None = st.session_state.get("lg-work")
    if work is not None:
        _wait_for(kind, work)
        return
    parts.html(markup.code(one.branch), Markup("<p>{}</p>").format(_ABOUT[kind]))
    if one.changes:
        changes = (
            Markup("<div>{}: {}</div>").format(
                markup.text(change.table), rows_of(change.rows_before, change.rows_after)
            )
            for change in one.changes
        )
        parts.html(Markup("").join(changes))
    reason = ""
    if kind == "accept":
        reason = st.text_area(
            "Reason", key="lg-reason", max_chars=_LONGEST_REASON, placeholder="The vendor confirmed that …"
        )
    parts.html(Markup('<p class="muted">Recorded as {}.</p>').format(markup.text(actor())))
    if st.button(_LABELS[kind], type="primary", key="lg-confirm"):
        if kind == "accept" and not reason.strip():
            parts.trouble("Write a reason: it's part of the commit.", tone="warn")
            return
        st.session_state["lg-work"] = _begin(kind, one.branch, reason)
        st.rerun(scope="fragment")


def _begin(kind: Kind, branch: str, reason: str) -> Work:
    lake, name = shared().lake, actor()
    actions: Mapping[Kind, Callable[[], Run | None]] = {
        "publish": lambda: lake.publish(branch, actor=name),
        "accept": lambda: lake.publish(branch, accept=reason, actor=name),
        "discard": lambda: lake.discard(branch, actor=name),
    }
    return Work(kind, branch, name).begin(actions[kind])


def _wait_for(kind: Kind, work: Work) -> None:
    work.wait(_LABELS[kind])
    st.session_state["lg-ended"] = work
    _end_dialog()
    st.rerun()


def _end_dialog() -> None:
    for key in (BUSY, "lg-work"):
        st.session_state.pop(key, None)


def rows_of(before: int | None, after: int | None) -> str:
    """Return how a table's number of rows changes.

    Example:
        >>> rows_of(100, 140), rows_of(0, 40), rows_of(None, 3)
        ('100 → 140 rows', '0 → 40 rows', 'unknown → 3 rows')
    """
    old, new = ("unknown" if number is None else f"{number:,}" for number in (before, after))
    return f"{old} → {new} rows"
