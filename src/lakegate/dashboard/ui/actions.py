"""What visitors can do to a branch, after confirming it: publish, accept with a reason, discard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import streamlit as st

from lakegate.dashboard.branches import BranchOverview, losses_of
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import actor, current_visitor, shared
from lakegate.errors import ConflictError, LakegateError

if TYPE_CHECKING:
    from lakegate.model.run import Run

Action = Literal["Publish", "Accept and publish", "Discard"]
_LONGEST_REASON = 1_000
_SEEN = "lg-seen"
"""Session state key of the branch's head when the visitor confirmed."""
_ASKED = "lg-asked"
"""Session state key of the branch and the action that the visitor is asked to confirm."""
_ABOUT: dict[Action, str] = {
    "Publish": "Its tables appear on main in one commit. Tables that aren't audited yet are audited first.",
    "Accept and publish": "Rows that failed their checks appear on main. The commit, the journal and the alert name "
    "you and your reason.",
    "Discard": "The branch and everything written to it are deleted, for good.",
}


def offer_actions(one: BranchOverview) -> None:
    """Show the buttons of a branch, if the visitor may act."""
    if not current_visitor().may_act:
        return
    publish: Action = "Accept and publish" if one.run is not None and one.run.status == "rejected" else "Publish"
    actions: tuple[Action, ...] = (publish, "Discard")
    with st.container(horizontal=True):
        for action in actions:
            st.button(f"{action} …", on_click=_ask, args=(one.branch, action))
    branch, asked = st.session_state.get(_ASKED, (None, None))
    if branch == one.branch and asked in actions:
        st.dialog(f"{asked} this branch?", width="medium", on_dismiss=_close)(_confirm)(asked, one)


def _ask(branch: str, action: Action) -> None:
    st.session_state[_ASKED] = branch, action


def _close() -> None:
    st.session_state.pop(_ASKED, None)


def _confirm(action: Action, one: BranchOverview) -> None:
    name = actor()
    st.text("\n".join((parts.clean(one.branch), _ABOUT[action], *(losses_of(one) if action == "Discard" else ()))))
    reason = ""
    if action == "Accept and publish":
        reason = st.text_area("Reason", max_chars=_LONGEST_REASON, placeholder="The vendor confirmed that …").strip()
    st.caption(f"Recorded as {parts.plain(name)}.")
    with st.container(horizontal=True):
        confirmed = st.button(action, type="primary", on_click=_remember, args=(one.head,))
        if st.button("Cancel", on_click=_close):
            st.rerun()
    if confirmed:
        _carry_out(action, one, reason, name)


def _carry_out(action: Action, one: BranchOverview, reason: str, name: str) -> None:
    seen = st.session_state.pop(_SEEN)
    if action == "Accept and publish" and not reason:
        st.warning("Write a reason: it's part of the commit.")
        return
    # In a thread of its own, which goes on if this window is closed.
    running = shared().actions.submit(_act, action, one.branch, seen, reason, name)
    try:
        with st.spinner(f"{action}: it continues if you close this window.", show_time=True):
            run = running.result()
    except LakegateError as error:
        parts.show_error(error)
        return
    _close()
    st.toast(f"{parts.plain(one.branch)}: {'discarded' if run is None else run.status}")
    if run is not None:
        parts.go("run", run=run.run_id)
    parts.go("branches")


def _remember(head: str) -> None:
    """Remember what the visitor saw: the click draws the page anew, with the branch as it is by then."""
    st.session_state[_SEEN] = head


def _act(action: Action, branch: str, seen: str, reason: str, name: str) -> Run | None:
    known = shared()
    # Nobody decides on rows that they haven't seen.
    if known.model.catalog.get_ref(branch).hash != seen:
        raise ConflictError(
            f"Branch '{branch}' was written to since you looked at it. Nothing was done.",
            hint="Look at the branch again before you confirm.",
            branch=branch,
        )
    if action == "Discard":
        return known.lake.discard(branch, actor=name)
    return known.lake.publish(branch, accept=reason or None, actor=name)
