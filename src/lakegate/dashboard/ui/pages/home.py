"""Home: every table, those that need a human first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.overview import Overview, TableOverview, overview
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Group, Html, TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.parts import show_systems
from lakegate.dashboard.ui.session import shared
from lakegate.model.words import counted, duration

_PAGE_SIZE = 50
_DAY_S = 86_400
_COLUMNS = (
    TableColumn("Table"),
    TableColumn("Rows", "num"),
    TableColumn("Trend", "fit"),
    TableColumn("Last publish", "fit"),
    TableColumn("Failing checks, by run", "fit"),
    TableColumn("Last run", "fit"),
)


def show() -> None:
    """Draw the page."""
    parts.heading("Home")
    figures = st.empty()
    with st.container(horizontal=True, vertical_alignment="center"):
        search = parts.search_box("Search tables", key="q")
        needing = st.toggle(
            "Only what needs you", key="needs", bind="query-params", on_change=parts.forget_cursor("after")
        )
    found = parts.read_page(
        lambda cursor: overview(shared().model, search=search, needing=needing, limit=_PAGE_SIZE, cursor=cursor)
    )
    with figures:
        parts.html(_figures(found))
    parts.problems(found.problems)
    if found.interrupted:
        lost = "its process" if len(found.interrupted) == 1 else "their processes"
        parts.show_alert(
            f"{counted(len(found.interrupted), 'run')} lost {lost}.",
            "The next ingest finishes or undoes them, or run: lakegate recover",
        )
    if found.items:
        parts.html(markup.table(_COLUMNS, _rows(found), caption="Tables"))
        parts.show_pagination(found, "table")
    elif not found.problems:
        _show_empty(search, needing=needing)
    with parts.boundary("the downstream systems"):
        show_systems(found.downstream)


def prerendered() -> Html | None:
    """Return the figures and tables for the page's document; ``None`` if the page must show anything else."""
    found = overview(shared().model, limit=_PAGE_SIZE)
    if found.problems or found.interrupted or not found.items:
        return None
    title = Markup('<h1 class="lg-title">Home</h1>')
    return markup.joined(title, _figures(found), markup.table(_COLUMNS, _rows(found), caption="Tables"), by="")


def _figures(found: Overview) -> Html:
    needing = Markup('<span class="{}">{}</span>').format("bad" if found.needing else "ok", f"{found.needing:,}")
    return markup.figures(
        (f"{found.total or 0:,}", "table" if found.total == 1 else "tables"),
        (needing, "needs you" if found.needing == 1 else "need you"),
        (markup.link("–" if found.branches is None else f"{found.branches:,}", "branches"), "branches besides main"),
        (markup.link(f"{len(found.running):,}", "runs", status="running"), "under way"),
    )


def _rows(found: Overview) -> Iterator[Sequence[object] | Group]:
    needing = [one for one in found.items if one.needs]
    others = [one for one in found.items if not one.needs]
    if needing:
        yield Group("Needs you")
        yield from (_row(one) for one in needing)
    if others:
        if needing:
            yield Group("All is well")
        yield from (_row(one) for one in others)


def _row(one: TableOverview) -> Sequence[object]:
    reasons = list(_reasons(one))
    name = Markup("<b>{}</b>").format(markup.table_link(one.table))
    if reasons:
        name += Markup('<div class="why">{}</div>').format(Markup("").join(reasons))
    return (
        name,
        _row_count(one),
        markup.sparkline(one.trend, label="rows after each of the newest publishes"),
        _published(one),
        _checks(one),
        _last_run(one),
    )


def _reasons(one: TableOverview) -> Iterator[Html]:
    for need in one.needs:
        if need == "unreadable":
            message = "its metadata can't be read" if one.problem is None else one.problem.message
            yield Markup("<div>{} {}</div>").format(markup.badge("unreadable", tone="bad", sign="!"), message)
        elif need == "failed" and one.last_run is not None:
            yield Markup("<div>{}: {}</div>").format(
                markup.badge("failed"), markup.link("its newest run", "run", run=one.last_run)
            )
        elif need == "rejected":
            waiting = counted(one.waiting, "rejected batch", "rejected batches")
            yield Markup("<div>{}</div>").format(
                markup.link(markup.badge(waiting, tone="bad", sign="✕"), "branches", table=one.table)
            )
        elif need == "late":
            yield Markup("<div>{} {}</div>").format(markup.badge("late"), lateness(one))
        elif need == "quarantined":
            rows = markup.badge(counted(one.quarantined, "quarantined row"), tone="warn", sign="⇥")
            yield Markup("<div>{}</div>").format(markup.link(rows, "table", table=one.table, view="Quarantine"))
        elif need == "interrupted":
            yield Markup("<div>{}</div>").format(markup.badge("a run's process died", tone="warn", sign="!"))


def lateness(one: TableOverview) -> str:
    """Return how late a table is, and how often a publish is expected."""
    every = f"expected every {one.expected_every}"
    return f"by {_days(one.late_s)}, {every}" if one.late_s else f"nothing published yet, {every}"


def _days(seconds: float) -> str:
    return counted(int(seconds // _DAY_S), "day") if seconds >= 2 * _DAY_S else duration(seconds)


def _row_count(one: TableOverview) -> Html:
    if one.rows is not None:
        return Markup("{:,}").format(one.rows)
    if one.exists is False:
        words = ("not yet", "It isn't on main yet")
        if one.last_publish is not None:
            words = ("gone", "It was dropped or renamed")
        return Markup('<span class="muted" title="{}">{}</span>').format(words[1], words[0])
    at_most = "–" if one.rows_at_most is None else f"≤ {one.rows_at_most:,}"
    return markup.muted(at_most)


def _published(one: TableOverview) -> Html:
    if one.last_publish is None:
        return markup.muted("never")
    ago = markup.ago(one.last_publish.at, shared().model.now())
    shown = markup.link(ago, "run", run=one.last_publish.run_id)
    if one.expected_every is None or one.late_s is not None:
        return shown
    return Markup('{} <span class="ok" title="expected every {}">✓ on time</span>').format(shown, one.expected_every)


def _checks(one: TableOverview) -> Html:
    if not one.checks_trend:
        return markup.muted("–")
    failing = [point.errors + point.warnings for point in one.checks_trend]
    if not any(failing):
        return markup.badge("none")
    label = f"failing checks of the newest {counted(len(failing), 'run')}, the last one {failing[-1]}"
    return Markup("{} <span>{}</span>").format(markup.sparkline(failing, label=label, tone="bad"), failing[-1])


def _last_run(one: TableOverview) -> Html:
    if one.last_run is None or one.last_status is None:
        return markup.muted("–")
    return markup.link(markup.badge(one.last_status), "run", run=one.last_run)


def _show_empty(search: str, *, needing: bool) -> None:
    if search or needing:
        what = f"Nothing matches '{search}'." if search else "Nothing needs you."
        parts.show_empty(what, "Clear the search and the switch above to see all tables.")
        return
    parts.show_empty(
        "No tables yet",
        "Write a batch to a branch, audit it, and publish it:",
        markup.commands("lakegate ingest nyc.trips trips/*.parquet --check 'not_null(trip_id)'"),
        "Or see how it works on generated data:",
        markup.commands("lakegate demo"),
    )


PAGE = Page("Home", path="", icon="home", order=0, show=show)
