"""What downstream systems were told of publishes, and what they are still to be told."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Column
from lakegate.dashboard.ui.session import shared
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamStatus
from lakegate.model.figures import counted

_TONES: dict[DeliveryState, tuple[markup.Tone, str]] = {
    "sent": ("ok", "✓"),
    "pending": ("live", "…"),
    "failed": ("bad", "✕"),
    "skipped": ("off", "="),
    "superseded": ("off", "="),
}


def show_systems(systems: Sequence[DownstreamStatus]) -> None:
    """Put the systems on the page, with what waits for each; nothing if there are none."""
    if not systems:
        return
    parts.html(Markup("<h2>Downstream systems</h2>"))
    stuck = [one.name for one in systems if one.failed]
    if stuck:
        parts.trouble(
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
    parts.html(markup.table(columns, map(_system, systems), caption="Downstream systems"))


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
    """Put what systems were told of a run on the page; nothing if there is nothing."""
    if not deliveries:
        return
    columns = (Column("State", "fit"), "System", "Tables", Column("Tries", "num"), Column("When", "fit"), "Why not")
    parts.html(
        Markup("<h2>Downstream systems</h2>"),
        markup.table(columns, map(_delivery, deliveries), caption="Downstream systems"),
    )
    failed = next((one for one in deliveries if one.state == "failed"), None)
    if failed is not None:
        parts.html(
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
        + (f" and {len(one.tables) - 10:,} more" if len(one.tables) > 10 else ""),  # noqa: PLR2004 - as shown
        f"{one.tries:,}",
        when,
        one.reason or "",
    )
