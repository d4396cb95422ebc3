"""What pages are made of: markup, links that don't reload, errors that leave the rest, page turning, downstreams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import streamlit as st
from markupsafe import Markup
from structlog.stdlib import get_logger

from lakegate.dashboard.ui import markup
from lakegate.dashboard.ui.markup import Column
from lakegate.dashboard.ui.session import shared
from lakegate.errors import InputError, LakegateError, RetryableError
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamStatus
from lakegate.model.figures import counted
from lakegate.model.schema import is_masked as matches_mask
from lakegate.model.schema import masked_row
from lakegate.progress import one_line

_FILTERS = "lg-filters"
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
    """Put a heading on the page, with a line below it that says what the page or part is about."""
    shown = markup.text(title, longest=300)
    line = Markup('<p class="muted">{}</p>').format(about) if about is not None else ""
    # Not st.title: it would read the text as Markdown.
    html(Markup('<h1 class="lg-title">{}</h1>{}').format(shown, line))


def param(name: str) -> str | None:
    """Return a query parameter, ``None`` if it's missing or empty."""
    return st.query_params.get(name) or None


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Show what goes wrong in the body where the body's part would be; the rest of the page is drawn.

    Args:
        what: What the body shows, such as ``the branches``.
    """
    try:
        yield
    except LakegateError as error:
        if type(error) is RetryableError:  # the journal's; others have classes of their own
            shared().model.note("journal", error)
        trouble(error.message, error.hint, tone="off" if isinstance(error, InputError) else "warn")
    except Exception as error:  # noqa: BLE001 - what is unexpected must not take the page with it
        _log.exception("the dashboard couldn't show something", what=what)
        trouble(
            f"Couldn't show {what}: {type(error).__name__}.",
            "This is a bug in lakegate. The terminal of `lakegate ui` has the details.",
            tone="bad",
        )


def draw_again(every_s: float) -> None:
    """Draw the page again and again, because what it shows is under way; a dialog that is open isn't disturbed."""
    drawn: list[bool] = []

    @st.fragment(run_every=every_s)
    def again() -> None:
        if drawn and not st.session_state.get("lg-busy"):
            st.rerun()
        drawn.append(True)

    with st.container(key="lg-again"):
        again()


def trouble(message: str, hint: str | None = None, *, tone: markup.Tone = "warn") -> None:
    """Say what couldn't be done, and what to do about it."""
    about = Markup('<div class="muted">{}</div>').format(one_line(hint)) if hint else ""
    html(
        Markup('<div class="todo {}" role="alert"><div>{}</div>{}</div>').format(
            tone, markup.text(message, longest=1_000), about
        )
    )


def problems(found: Iterable[Any]) -> None:
    """Show what of the lake couldn't be read: a page's ``problems``."""
    for one in found:
        trouble(one.message, one.hint)


def search_box(label: str, *, key: str, cursor_name: str = "after") -> str:
    """Offer a field to search with; its text is the query parameter ``key``.

    Args:
        key: The query parameter, and the widget's key.
        cursor_name: Query parameter of the page of results, which starts over.
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


def choice(label: str, options: Sequence[str], *, key: str, cursor_name: str = "after") -> str | None:
    """Offer one of some words, or none; it's the query parameter ``key``."""
    _note_filter(key)
    return st.selectbox(
        label,
        options,
        index=None,
        key=key,
        bind="query-params",
        placeholder=label,
        label_visibility="collapsed",
        on_change=forget_cursor(cursor_name),
    )


def unmasked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of data without the values that ``ui.masked`` and ``audit.mask`` hide."""
    return [masked_row(shared().access.settings.masked, row) for row in rows]


def is_masked(column: str) -> bool:
    """Return whether ``ui.masked`` or ``audit.mask`` hides the values of a column."""
    return matches_mask(shared().access.settings.masked, column)


def _note_filter(key: str) -> None:
    st.session_state.setdefault(_FILTERS, set()).add(key)


def forget_filters() -> None:
    """Forget the filters of the page before, but those that the address names: its own keys may be the same."""
    for key in st.session_state.pop(_FILTERS, ()):
        if key not in st.query_params:
            st.session_state.pop(key, None)


def forget_cursor(name: str) -> Callable[[], None]:
    """Return what to do when a filter changes: start at the first page of results."""

    def forget() -> None:
        if name in st.query_params:
            del st.query_params[name]

    return forget


def turn_pages(*, cursor_name: str, following: str | None, shown: int, noun: str, total: int | None = None) -> None:
    """Offer the next page of results, and the way back to the first.

    Args:
        cursor_name: Name of the query parameter that holds the cursor.
        following: Cursor of the next page; ``None`` on the last one.
        noun: What the results are, such as ``run``.
    """
    at = param(cursor_name)
    if at is None and following is None:
        return
    words = counted(shown, noun) + (f" of {total:,}" if total is not None else "")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        html(Markup('<span class="muted">{}</span>').format(words))
        if at is not None and st.button("First page", key=f"lg-first-{cursor_name}"):
            del st.query_params[cursor_name]
            st.rerun()
        if following is not None and st.button("Next page", key=f"lg-next-{cursor_name}"):
            st.query_params[cursor_name] = following
            st.rerun()


def show_systems(systems: Sequence[DownstreamStatus]) -> None:
    """Put the systems on the page, with what waits for each; nothing if there are none."""
    if not systems:
        return
    html(Markup("<h2>Downstream systems</h2>"))
    stuck = [one.name for one in systems if one.failed]
    if stuck:
        trouble(
            f"{', '.join(stuck[:5])}: given up after many tries; later events of the same tables wait.",
            f"After fixing it: lakegate downstream retry {stuck[0]}",
            tone="bad",
        )
    columns = (
        Column("State", "fit"),
        "System",
        Column("Queued", "num"),
        Column("Given up", "num"),
        Column("Sent", "num"),
        Column("Last sent", "fit"),
        "What waits",
    )
    html(markup.table(columns, map(_system, systems), caption="Downstream systems"))


def _system(one: DownstreamStatus) -> Sequence[object]:
    state: DeliveryState | None = "failed" if one.failed else "pending" if one.pending else "sent" if one.sent else None
    badge = markup.badge("nothing yet", tone="off", sign="·")
    if state is not None:
        word = {"failed": "given up", "pending": "queued"}.get(state, "up to date")
        badge = markup.badge(word, tone=_TONES[state][0], sign=_TONES[state][1])
    name = markup.joined(
        markup.text(one.name), Markup('<span class="muted">{}</span>').format(one.type or "not in the settings here")
    )
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
    """Show which systems were notified of a run; nothing if there is nothing."""
    if not deliveries:
        return
    columns = (Column("State", "fit"), "System", "Tables", Column("Tries", "num"), Column("When", "fit"), "Why not")
    html(
        Markup("<h2>Downstream systems</h2>"),
        markup.table(columns, map(_delivery, deliveries), caption="Downstream systems"),
    )
    failed = next((one for one in deliveries if one.state == "failed"), None)
    if failed is not None:
        html(
            Markup('<p class="muted">{} given up. After fixing it: {}</p>').format(
                counted(sum(one.state == "failed" for one in deliveries), "delivery", "deliveries"),
                markup.code(f"lakegate downstream retry {failed.downstream}"),
            )
        )


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
