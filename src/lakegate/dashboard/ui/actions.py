"""Actions that visitors can take on a branch, quarantined rows or a run, after confirming them.

An action belongs to the lake, not to the window. It finishes even if the window is closed, and all windows of its
visitor show the outcome until it's dismissed in one of them. If two windows publish one branch at the same time, the
run's lease lets only one proceed, as with two commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.branches import BranchOverview
from lakegate.dashboard.quarantine import QuarantineDetail
from lakegate.dashboard.runs import find_run
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Html, TableColumn
from lakegate.dashboard.ui.session import BUSY, BackgroundAction, actor, current_visitor, shared
from lakegate.errors import ConflictError, LakegateError, NotFoundError, NotRevertableError
from lakegate.model.refs import MAIN
from lakegate.model.run import Run, UndoneTable
from lakegate.model.words import counted

if TYPE_CHECKING:
    from lakegate.lake import Lake

Kind = Literal["publish", "accept", "discard", "release", "drop"]
_LONGEST_REASON = 1_000
_TITLES: Mapping[Kind, str] = {
    "publish": "Publish this branch?",
    "accept": "Publish although its audit failed?",
    "discard": "Discard this branch?",
    "release": "Publish these quarantined rows?",
    "drop": "Delete these quarantined rows?",
}
_ABOUT: Mapping[Kind, str] = {
    "publish": "Its tables appear on main in one commit. Tables that aren't audited yet are audited first.",
    "accept": "Rows that failed their checks appear on main. The commit, the journal and the alert name you and your "
    "reason.",
    "discard": "The branch and everything written to it are deleted. main doesn't change.",
    "release": "They appear in the table as they are, if they all pass its current checks. Otherwise nothing changes.",
    "drop": "They never reach the table. The run that deletes them can be reverted.",
}
_LABELS: Mapping[Kind, str] = {
    "publish": "Publish",
    "accept": "Accept and publish",
    "discard": "Discard",
    "release": "Release",
    "drop": "Delete",
}
_DOING: Mapping[str, str] = {
    "publish": "Publishing",
    "accept": "Publishing",
    "discard": "Discarding",
    "release": "Releasing",
    "drop": "Deleting",
    "revert": "Reverting",
}
_DONE = "lg-reverted"
_PLAN = "lg-revert-plan"


@dataclass(frozen=True)
class _Offer:
    """An action that a visitor may take.

    Attributes:
        do: Takes the action, given the visitor's name and reason.
    """

    kind: Kind
    about: str
    details: Html
    do: Callable[[str, str], Run | None]


def offer_actions(one: BranchOverview) -> None:
    """Show the buttons of a branch, if the visitor may act."""
    branch, known = one.branch, shared()
    details = Markup("").join(
        Markup("<div>{}: {}</div>").format(markup.text(change.table), rows_of(change.rows_before, change.rows_after))
        for change in one.changes
    )

    def lake() -> Lake:
        """Return the lake. Raise if the branch changed since the visitor saw it: nobody decides on unseen rows."""
        with suppress(NotFoundError):  # the command explains why it's gone
            if known.model.catalog.get_ref(branch).hash != one.head:
                raise ConflictError(
                    f"Branch '{branch}' was written to since you looked at it. Nothing was done.",
                    hint="Reload this page and look at the branch again before you confirm.",
                    branch=branch,
                )
        return known.lake

    discard = _Offer("discard", branch, details, lambda name, _: lake().discard(branch, actor=name))
    if one.run is not None and one.run.status == "rejected":
        first = _Offer("accept", branch, details, lambda name, why: lake().publish(branch, accept=why, actor=name))
    else:
        first = _Offer("publish", branch, details, lambda name, _: lake().publish(branch, actor=name))
    _offer(first, discard)


def offer_release(found: QuarantineDetail, run_id: str | None) -> None:
    """Show the buttons of a table's quarantined rows, if some wait and the visitor may act.

    Args:
        run_id: The run that set them aside; ``None`` for all runs.
    """
    if not found.waiting:
        return
    table, lake = found.table, shared().lake
    details = Markup("<div>{}: {}</div>").format(markup.text(table), counted(found.waiting, "row"))
    # The decision covers only rows that the visitor has seen, not rows set aside since.
    waiting = {one.run_id: one.waiting for one in found.runs if one.waiting}
    shown: Any = {"run_id": run_id, "confirmed": waiting, "confirmed_at": found.commit}
    _offer(
        _Offer("release", table, details, lambda name, _: lake.quarantine_release(table, actor=name, **shown)),
        _Offer("drop", table, details, lambda name, _: lake.quarantine_drop(table, actor=name, **shown)),
    )


def _offer(*offers: _Offer) -> None:
    if not current_visitor().may_act:
        return
    with st.container(horizontal=True, gap="small"):
        for one in offers:
            label = _LABELS[one.kind] + ("" if one.kind == "discard" else " …")
            if st.button(label, key=f"lg-{one.kind}-{one.about}", type="secondary"):
                st.session_state[BUSY] = True
                _confirm(one)


def show_outcomes() -> None:
    """Show the visitor's running actions and the outcomes of ended ones, whichever window started them.

    An outcome stays until it's dismissed: that a window was drawn doesn't mean that anybody saw it.
    """
    for work in shared().actions.of(actor()):
        reverted = st.session_state.get(_DONE) if parts.param("revert") == work.about else None
        if work in (st.session_state.get("lg-work"), reverted):
            continue  # this window's dialog or page shows it
        with st.container(horizontal=True, vertical_alignment="top", gap="small"):
            _show_outcome(work)
            if work.is_done and st.button("Dismiss", key=f"lg-seen-{id(work)}", type="tertiary"):
                shared().actions.seen(work)
                st.rerun()


def has_succeeded(about: str) -> bool:
    """Return whether an action of the visitor on a branch has succeeded, so that the branch is gone."""
    works = shared().actions.of(actor())
    return any(work.about == about and work.is_done and work.error is None for work in works)


def _show_outcome(work: BackgroundAction) -> None:
    about = markup.code(work.about)
    if work.action in ("release", "drop"):
        about = markup.joined("quarantined rows of ", about, by="")
    if not work.is_done:
        live = markup.badge(_DOING[work.action], tone="live", sign="●")
        began = markup.ago(work.began_at)
        parts.html(Markup('<div class="todo live">{} {}, started {}</div>').format(live, about, began))
    elif work.error is not None:
        parts.show_alert(f"{_DOING[work.action]} {work.about} failed: {work.error}", work.hint, tone="bad")
    else:
        tone: markup.Tone = "off" if work.action in ("discard", "drop") else "live"
        done = markup.badge({"discard": "discarded", "revert": "reverted"}.get(work.action, "published"))
        if work.action == "drop":
            done = markup.badge("deleted", tone="off", sign="-")
        where = markup.joined(" in ", markup.run_link(work.run.run_id), by="") if work.run is not None else ""
        parts.html(Markup('<div class="todo {}">{} {}{}</div>').format(tone, done, about, where))


def _confirm(offer: _Offer) -> None:
    @st.dialog(_TITLES[offer.kind], on_dismiss=_end_dialog)
    def ask() -> None:
        _dialog(offer)

    ask()


def _dialog(offer: _Offer) -> None:
    work: BackgroundAction | None = st.session_state.get("lg-work")
    if work is not None:
        work.wait(_LABELS[offer.kind])
        _end_dialog()
        st.rerun()
    parts.html(markup.code(offer.about), Markup("<p>{}</p>").format(_ABOUT[offer.kind]))
    if offer.details:
        parts.html(offer.details)
    reason = ""
    if offer.kind == "accept":
        reason = st.text_area(
            "Reason", key="lg-reason", max_chars=_LONGEST_REASON, placeholder="The vendor confirmed that …"
        )
    name = actor()
    parts.note("Recorded as ", markup.text(name), ".")
    if st.button(_LABELS[offer.kind], type="primary", key="lg-confirm"):
        if offer.kind == "accept" and not reason.strip():
            parts.show_alert("Write a reason: it's part of the commit.", tone="warn")
            return
        st.session_state["lg-work"] = BackgroundAction(offer.kind, offer.about, name).begin(
            lambda: offer.do(name, reason)
        )
        st.rerun(scope="fragment")


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


def show_revert(run_id: str, *, may_act: bool) -> None:
    """Show what reverting a run would change, and let the visitor revert it.

    Args:
        may_act: Whether the visitor may revert. If not, only the command is shown.

    Raises:
        NotFoundError: The run doesn't exist.
    """
    done: BackgroundAction | None = st.session_state.get(_DONE)
    if done is not None and done.about == run_id:
        _show_reverted(done)
        return
    run = find_run(shared().model, run_id)
    title = markup.joined("Revert ", markup.run_link(run.run_id), "?", by="")
    with st.container(border=True):
        parts.html(Markup("<h2>{}</h2>").format(title), _run_summary(run))
        if not may_act:
            parts.html(
                markup.note("This dashboard is read-only. To see what a revert would undo, run:"),
                markup.commands(f"lakegate revert {run.run_id} --dry-run"),
            )
            _close_button("Close")
            return
        if _show_plan(run):
            with st.container(horizontal=True, gap="small"):
                if st.button("Revert", type="primary", key="revert-do"):
                    _revert(run)
                _close_button("Cancel")
        else:
            _close_button("Close")


def _run_summary(run: Run) -> Markup:
    tables = markup.joined(*map(markup.table_link, run.tables), by=", ")
    rows = "" if run.rows_published is None else f" · {run.rows_published:,} rows added"
    when = markup.ago(run.finished_at or run.started_at)
    return markup.note(tables, " · published ", when, rows)


def _show_plan(run: Run) -> bool:
    """Show what the revert would change. Return whether it's possible."""
    try:
        plan = _plan(run.run_id)
    except LakegateError as error:
        parts.show_alert(error.message, error.hint, tone="warn" if isinstance(error, NotRevertableError) else "off")
        return False
    parts.html(undone_tables(plan.undone, caption="What would change"))
    parts.note("One commit on main, recorded as ", markup.text(actor()), ". Then the files can be ingested again.")
    return True


def undone_tables(undone: Sequence[UndoneTable], *, caption: str) -> Html:
    """Return what a revert does to each table."""
    rows = (
        (
            markup.table_link(one.table),
            "unknown" if one.rows is None else f"{one.rows:+,}",
            f"{one.data_files:+,}",
            markup.badge("dropped", tone="bad", sign="-") if one.dropped else "",
        )
        for one in undone
    )
    columns = ("Table", TableColumn("Rows", "num"), TableColumn("Data files", "num"), "")
    return markup.table(columns, rows, caption=caption)


def _plan(run_id: str) -> Run:
    """Return the revert as a dry run on the current head of main."""
    key = (run_id, shared().model.catalog.get_ref(MAIN).hash)
    known: tuple[object, Run] | None = st.session_state.get(_PLAN)
    if known is None or known[0] != key:
        with st.spinner("Working out what would change…"):
            known = (key, shared().lake.revert(run_id, dry_run=True))
        st.session_state[_PLAN] = known
    return known[1]


def _revert(run: Run) -> None:
    lake, name = shared().lake, actor()
    # A redraw would look as if nothing happened.
    st.session_state[BUSY] = True
    work = BackgroundAction("revert", run.run_id, name).begin(lambda: lake.revert(run.run_id, actor=name))
    try:
        work.wait("Reverting")
    finally:
        st.session_state.pop(BUSY, None)
        st.session_state.pop(_PLAN, None)
    if work.error is None:
        st.session_state[_DONE] = work
    st.rerun()


def _show_reverted(work: BackgroundAction) -> None:
    reverted = work.run
    with st.container(border=True):
        if reverted is not None:
            commit = markup.code(reverted.publication.commit[:12]) if reverted.publication is not None else "no commit"
            parts.html(
                Markup("<p>{} {} in {} by run {}</p>").format(
                    markup.badge("done", tone="ok", sign="✓"),
                    markup.joined("Reverted ", markup.joined(*map(markup.run_link, reverted.reverts), by=", ")),
                    commit,
                    markup.run_link(reverted.run_id),
                )
            )
        _close_button("Close")


def _close_button(label: str) -> None:
    if st.button(label, key="revert-close"):
        if (done := st.session_state.pop(_DONE, None)) is not None:
            shared().actions.seen(done)
        if "revert" in st.query_params:
            del st.query_params["revert"]
        st.rerun()
