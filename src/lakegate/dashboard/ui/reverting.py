"""Reverting a run from a page: first what it would change, then the revert."""

from __future__ import annotations

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.model import MAIN
from lakegate.dashboard.runs import find_run
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Column
from lakegate.dashboard.ui.session import shared
from lakegate.dashboard.ui.work import BUSY, Work, actor
from lakegate.errors import LakegateError, NotRevertableError
from lakegate.model.run import Run

_DONE = "lg-reverted"
_PLAN = "lg-revert-plan"


def ask(run_id: str, *, may_act: bool) -> None:
    """Show what reverting a run would change, and let the visitor do it.

    Args:
        may_act: Whether the visitor may revert; else only the command is shown.

    Raises:
        InputError: There's no such run.
        RetryableError: The journal can't be reached.
    """
    if (done := st.session_state.get(_DONE)) is not None and done[0] == run_id:
        _say_done(done[1])
        return
    run = find_run(shared().model, run_id)
    title = markup.joined("Revert ", markup.run_link(run.run_id), "?", by="")
    with st.container(border=True):
        parts.html(Markup("<h2>{}</h2>").format(title), _about(run))
        if not may_act:
            parts.html(
                Markup('<p class="muted">This dashboard is read-only. To see what it would undo, run:</p>'),
                markup.commands(f"lakegate revert {run.run_id} --dry-run"),
            )
            _close_button("Close")
            return
        cascade = st.checkbox("Also revert the runs that depend on it", key=f"cascade-{run_id}")
        if _show_plan(run, cascade=cascade):
            with st.container(horizontal=True, gap="small"):
                if st.button("Revert", type="primary", key="revert-do"):
                    _revert(run, cascade=cascade)
                _close_button("Cancel")
        else:
            _close_button("Close")


def _about(run: Run) -> Markup:
    tables = markup.joined(*map(markup.table_link, run.tables), by=", ")
    rows = f" · {run.publication.rows:,} rows added" if run.publication is not None else ""
    when = markup.ago(run.finished_at or run.started_at)
    return Markup('<p class="muted">{} · published {}{}</p>').format(tables, when, rows)


def _show_plan(run: Run, *, cascade: bool) -> bool:
    """Show what the revert would change; return whether it can be done."""
    try:
        plan = _plan(run.run_id, cascade=cascade)
    except LakegateError as error:
        parts.trouble(error.message, error.hint, tone="warn" if isinstance(error, NotRevertableError) else "off")
        return False
    rows = (
        (
            markup.table_link(one.table),
            "unknown" if one.rows is None else f"{one.rows:+,}",
            f"{one.data_files:+,}",
            markup.badge("dropped", tone="bad", sign="-") if one.dropped else "",
        )
        for one in plan.undone
    )
    columns = ("Table", Column("Rows", "num"), Column("Data files", "num"), "")
    parts.html(markup.table(columns, rows, caption="What would change"))
    others = [one for one in plan.reverts if one != run.run_id]
    if others:
        parts.html(Markup("<p>Also reverts {}.</p>").format(markup.joined(*map(markup.run_link, others), by=", ")))
    parts.html(
        Markup('<p class="muted">One commit on main, recorded as {}. The files can be ingested again then.</p>').format(
            markup.text(actor())
        )
    )
    return True


def _plan(run_id: str, *, cascade: bool) -> Run:
    """Return what would change on the head of main as it is now."""
    key = (run_id, cascade, shared().model.catalog.get_ref(MAIN).hash)
    known: tuple[object, Run] | None = st.session_state.get(_PLAN)
    if known is None or known[0] != key:
        with st.spinner("Working out what would change…"):
            known = (key, shared().lake.revert(run_id, cascade=cascade, dry_run=True))
        st.session_state[_PLAN] = known
    return known[1]


def _revert(run: Run, *, cascade: bool) -> None:
    lake, name = shared().lake, actor()
    # Drawing the page anew would look as if nothing happened.
    st.session_state[BUSY] = True
    work = Work("revert", run.run_id, name)
    work.begin(lambda: lake.revert(run.run_id, cascade=cascade, actor=name)).wait("Reverting")
    st.session_state.pop(BUSY, None)
    st.session_state.pop(_PLAN, None)
    if work.error is not None:
        parts.trouble(work.error, work.hint, tone="bad")
        return
    st.session_state[_DONE] = (run.run_id, work.run)
    st.rerun()


def _say_done(reverted: Run) -> None:
    with st.container(border=True):
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
        st.session_state.pop(_DONE, None)
        if "revert" in st.query_params:
            del st.query_params["revert"]
        st.rerun()
