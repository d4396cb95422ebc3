"""Building blocks of the pages: markup, filters, pagination, error boundaries, queries, downstream systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import streamlit as st
from markupsafe import Markup
from structlog.stdlib import get_logger

from lakegate.dashboard.model import Problem, ResultPage
from lakegate.dashboard.queries import Queries, QueryJob
from lakegate.dashboard.ui import markup
from lakegate.dashboard.ui.markup import TableColumn
from lakegate.dashboard.ui.session import Shared, shared
from lakegate.errors import InputError, LakegateError, RetryableError
from lakegate.lake import Lake, connect
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamStatus
from lakegate.model.refs import MAIN
from lakegate.model.schema import masked_row
from lakegate.model.words import counted, duration
from lakegate.ports import Narrator
from lakegate.progress import one_line

_Result = TypeVar("_Result", bound=ResultPage[Any])
_FILTERS = "lg-filters"
_POLL_EVERY_S = 0.5
_log = get_logger(__name__)
_TONES: dict[DeliveryState, tuple[markup.Tone, str]] = {
    "sent": ("ok", "✓"),
    "pending": ("live", "…"),
    "failed": ("bad", "✕"),
    "skipped": ("off", "="),
    "superseded": ("off", "="),
}


def html(*parts: object) -> None:
    """Put markup on the page; plain text among it is escaped."""
    st.html(Markup('<div class="lg">{}</div>').format(markup.joined(*parts, by="")))


def heading(title: str, about: object | None = None) -> None:
    """Put a heading on the page, with a line below it that describes the page."""
    # st.title would read the text as Markdown.
    heading = Markup('<h1 class="lg-title">{}</h1>').format(markup.text(title, longest=300))
    html(heading, "" if about is None else markup.note(about))


def note(*parts: object) -> None:
    """Put a paragraph of secondary text on the page; plain text is escaped."""
    html(markup.note(*parts))


def show_empty(title: str, *lines: object) -> None:
    """Show a placeholder for missing content: what's missing, and what to do."""
    html(markup.empty(title, *lines))


def param(name: str) -> str | None:
    """Return a query parameter; ``None`` if it's missing or empty."""
    return st.query_params.get(name) or None


def start_param(name: str, total: int) -> int:
    """Return a query parameter that holds an offset below ``total``; 0 if it's missing or invalid."""
    given = param(name) or ""
    start = int(given[:9]) if given.isascii() and given.isdecimal() else 0
    return start if start < total else 0


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Show errors of the body in its place, so that the rest of the page is drawn.

    Args:
        what: What the body draws, such as ``the branches``.
    """
    try:
        yield
    except LakegateError as error:
        if type(error) is RetryableError:  # from the journal: the catalog's errors have their own class
            shared().model.mark_unavailable("journal", error)
        show_alert(error.message, error.hint, tone="off" if isinstance(error, InputError) else "warn")
    except Exception as error:  # noqa: BLE001 - an unexpected error must not take the whole page down
        _log.exception("the dashboard couldn't show something", what=what)
        show_alert(
            f"Couldn't show {what}: {type(error).__name__}.",
            "This is a bug in lakegate. The terminal of `lakegate ui` has the details.",
            tone="bad",
        )


def redraw_every(every_s: float) -> None:
    """Redraw the page regularly while its content changes, unless a dialog is open."""
    drawn: list[bool] = []

    @st.fragment(run_every=every_s)
    def again() -> None:
        if drawn and not st.session_state.get("lg-busy"):
            st.rerun()
        drawn.append(True)

    with st.container(key="lg-again"):
        again()


def show_alert(message: str, hint: str | None = None, *, tone: markup.Tone = "warn") -> None:
    """Show a problem and what to do about it."""
    about = Markup('<div class="muted">{}</div>').format(one_line(hint)) if hint else ""
    html(
        Markup('<div class="todo {}" role="alert"><div>{}</div>{}</div>').format(
            tone, markup.text(message, longest=1_000), about
        )
    )


def problems(found: Iterable[Problem]) -> None:
    """Show which parts of the lake couldn't be read."""
    for one in found:
        show_alert(one.message, one.hint)


def search_box(label: str, *, key: str, cursor_name: str = "after") -> str:
    """Show a search field whose text is the query parameter ``key``.

    Args:
        cursor_name: Query parameter with the cursor, which a new search resets.
    """
    _note_filter(key)
    return st.text_input(
        label,
        key=key,
        bind="query-params",
        placeholder=label,
        label_visibility="collapsed",
        max_chars=300,
        on_change=forget_cursor(cursor_name),
    ).strip()


def choice(label: str, options: Sequence[str], *, key: str) -> str | None:
    """Show a select box, empty at first, whose value is the query parameter ``key``."""
    _note_filter(key)
    return st.selectbox(
        label,
        options,
        index=None,
        key=key,
        bind="query-params",
        placeholder=label,
        label_visibility="collapsed",
        on_change=forget_cursor("after"),
    )


def ref_box(on_change: Callable[[], None]) -> str:
    """Show a text field for a branch, tag or commit, ``main`` at first, which is the query parameter ``ref``."""
    ref = st.text_input(
        "Branch, tag or commit", value=MAIN, key="ref", bind="query-params", max_chars=300, on_change=on_change
    )
    return ref.strip() or MAIN


def unmasked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the values that ``ui.masked`` and ``audit.mask`` hide."""
    return [masked_row(shared().access.settings.masked, row) for row in rows]


def _note_filter(key: str) -> None:
    st.session_state.setdefault(_FILTERS, set()).add(key)


def forget_filters() -> None:
    """Forget the previous page's filters, whose keys may be this page's too. Keep those that the URL names."""
    for key in st.session_state.pop(_FILTERS, ()):
        if key not in st.query_params:
            st.session_state.pop(key, None)


def forget_cursor(name: str) -> Callable[[], None]:
    """Return a callback for a changed filter, which goes back to the first page of results."""

    def forget() -> None:
        if name in st.query_params:
            del st.query_params[name]

    return forget


def read_page(read: Callable[[str | None], _Result]) -> _Result:
    """Return the page of results at the URL's cursor; the first page if the cursor is invalid."""
    try:
        return read(param("after"))
    except InputError:
        return read(None)


def show_pagination(page: ResultPage[Any], noun: str, *, cursor_name: str = "after") -> None:
    """Show buttons for the next and the first page of results. Arguments as for :func:`show_page_buttons`."""
    show_page_buttons(noun, shown=len(page.items), following=page.next, total=page.total, cursor_name=cursor_name)


def show_page_buttons(
    noun: str, *, shown: int, following: str | None, total: int | None = None, cursor_name: str = "after"
) -> None:
    """Show buttons for the next and the first page of results.

    Args:
        noun: What the results are, such as ``run``.
        following: Cursor of the next page; ``None`` on the last one.
    """
    at = param(cursor_name)
    if at is None and following is None:
        return
    words = counted(shown, noun) + (f" of {total:,}" if total is not None else "")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        html(markup.muted(words))
        if at is not None and st.button("First page", key=f"lg-first-{cursor_name}"):
            del st.query_params[cursor_name]
            st.rerun()
        if following is not None and st.button("Next page", key=f"lg-next-{cursor_name}"):
            st.query_params[cursor_name] = following
            st.rerun()


@cache
def queries(known: Shared) -> Queries:
    """Return the runner of all visitors' queries."""

    def open_lake(narrator: Narrator) -> Lake:
        return connect(known.lake.home, settings=known.lake.settings, narrator=narrator)

    return Queries(open_lake)


def keep_jobs_alive() -> None:
    """Keep this visitor's queries running: their page is still open."""
    for known in st.session_state.values():
        if isinstance(known, QueryJob):
            known.seen()


def watch(*jobs: QueryJob, key: str) -> None:
    """Show the progress of queries with a stop button. Redraw the page once all have ended."""

    @st.fragment(run_every=_POLL_EVERY_S)
    def look() -> None:
        running = [job for job in jobs if job.state == "running"]
        if not running:
            st.rerun()
        job = running[0]
        with st.container(border=True):
            live = markup.badge("running", tone="live", sign="●")
            html(markup.joined(live, " ", markup.text(job.doing), f" · {duration(job.seconds)}"))
            if job.progress is not None and job.progress[1]:
                done, total = job.progress
                st.progress(min(done / total, 1.0))
            if st.button("Stop", key=key):
                for one in running:
                    one.stop()
                st.rerun()

    look()


def show_error(error: LakegateError) -> None:
    """Show why rows couldn't be read."""
    show_alert(error.message, error.hint, tone="warn" if isinstance(error, RetryableError) else "bad")
    if isinstance(error, RetryableError):
        note("Only queries need Spark; all other pages work without it.")


def show_systems(systems: Sequence[DownstreamStatus]) -> None:
    """Show the downstream systems with what waits for each; nothing if there are none."""
    if not systems:
        return
    html(Markup("<h2>Downstream systems</h2>"))
    stuck = [one.name for one in systems if one.failed]
    if stuck:
        show_alert(
            f"{', '.join(stuck[:5])}: gave up after many tries. Later events for the same tables are waiting.",
            f"After fixing it: lakegate downstream retry {stuck[0]}",
            tone="bad",
        )
    columns = (
        TableColumn("State", "fit"),
        "System",
        TableColumn("Queued", "num"),
        TableColumn("Given up", "num"),
        TableColumn("Sent", "num"),
        TableColumn("Last sent", "fit"),
        "What waits",
    )
    html(markup.table(columns, map(_system, systems), caption="Downstream systems"))


def _system(one: DownstreamStatus) -> Sequence[object]:
    state: DeliveryState | None = "failed" if one.failed else "pending" if one.pending else "sent" if one.sent else None
    badge = markup.badge("nothing yet", tone="off", sign="·")
    if state is not None:
        word = {"failed": "given up", "pending": "queued"}.get(state, "up to date")
        badge = markup.badge(word, tone=_TONES[state][0], sign=_TONES[state][1])
    name = markup.joined(markup.text(one.name), markup.muted(one.type or "not in the settings here"))
    return badge, name, f"{one.pending:,}", f"{one.failed:,}", f"{one.sent:,}", markup.ago(one.last_sent_at), _why(one)


def _why(one: DownstreamStatus) -> Markup:
    now, said = shared().model.now(), []
    if one.oldest is not None:
        said.append(markup.joined("since ", markup.ago(one.oldest, now), by=""))
    if one.pending and one.next_at is not None and one.next_at > now:
        said.append(markup.joined("next try ", markup.ago(one.next_at, now), by=""))
    if one.reason:
        said.append(markup.text(one.reason, longest=300))
    return markup.joined(*said, by="; ") if said else Markup("")


def show_deliveries(deliveries: Sequence[Delivery]) -> None:
    """Show which downstream systems were notified of a run; nothing if none are."""
    if not deliveries:
        return
    columns = (
        TableColumn("State", "fit"),
        "System",
        "Tables",
        TableColumn("Tries", "num"),
        TableColumn("When", "fit"),
        "Why not",
    )
    html(
        Markup("<h2>Downstream systems</h2>"),
        markup.table(columns, map(_delivery, deliveries), caption="Downstream systems"),
    )
    failed = next((one for one in deliveries if one.state == "failed"), None)
    if failed is not None:
        given_up = counted(sum(one.state == "failed" for one in deliveries), "delivery", "deliveries")
        command = markup.code(f"lakegate downstream retry {failed.downstream}")
        note(given_up, " given up. After fixing it: ", command)


def _delivery(one: Delivery) -> Sequence[object]:
    now = shared().model.now()
    when = markup.ago(one.ended_at or one.queued_at, now)
    if one.state == "pending" and one.next_at is not None and one.next_at > now:
        when = markup.joined("next try ", markup.ago(one.next_at, now), by="")
    word = {"failed": "given up", "pending": "queued"}.get(one.state, one.state)
    return (
        markup.badge(word, tone=_TONES[one.state][0], sign=_TONES[one.state][1]),
        one.downstream,
        markup.joined(*map(markup.table_link, one.tables[:10]), by=", ")
        + (f" and {len(one.tables) - 10:,} more" if len(one.tables) > 10 else ""),
        f"{one.tries:,}",
        when,
        one.reason or "",
    )
