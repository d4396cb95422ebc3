"""Nothing from data becomes markup."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from markupsafe import Markup

from lakegate.dashboard.ui import markup

HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnirts",
    '" onmouseover="x',
    "🙂" * 5000,
    "a\x00b",
    "</table>",
    "{0.__class__}",
)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.mark.parametrize("value", HOSTILE)
def test_values_stay_values(value: str) -> None:
    pieces = [
        markup.text(value),
        markup.badge(value),
        markup.code(value),
        markup.link(value, "table", table=value),
        markup.run_link(value),
        markup.table([markup.TableColumn(value, "num"), value], [(value, {value: [value]})], caption=value),
        markup.table([value] * 4, [(value,) * 4], caption=value),
        markup.example_rows([{value: value, "b": None}], [value], caption=value),
        markup.figures((value, value)),
        markup.facts((value, value)),
        markup.empty(value, value),
        markup.commands(value),
        markup.sparkline([1, 2, None], label=value),
    ]
    parsed = _Tags()
    parsed.feed(Markup("").join(pieces))
    assert not parsed.seen & {"script"}
    assert not {name for name in parsed.attributes if name.startswith("on")}
    assert "\u202e" not in Markup("").join(pieces)
    assert all(len(piece) < 100_000 for piece in pieces)


def test_a_long_value_is_clipped_and_its_beginning_shows_on_demand() -> None:
    shown = markup.text("x" * 10_000)
    assert shown.count("x") < 2_500
    assert 'title="xxx' in shown


def test_a_link_carries_any_name() -> None:
    assert str(markup.table_link("a.b&c=<d>")) == (
        '<a class="lg-go" href="./table?table=a.b%26c%3D%3Cd%3E"><bdi class="value">a.b&amp;c=&lt;d&gt;</bdi></a>'
    )


def test_a_phone_shows_rows_of_many_cells_as_cards_with_their_headings() -> None:
    wide = markup.table(["Run", markup.TableColumn("Rows", "num"), "Took", ""], [("a", 1, 2, "b")], caption="Runs")
    assert '<table class="cards">' in wide
    assert '<td class="num" data-label="Rows">' in wide
    assert wide.count("data-label") == 3
    assert "data-label" not in markup.table(["Run", "Rows", "Took"], [("a", 1, 2)], caption="Runs")


def test_status_is_a_word_and_an_icon() -> None:
    for status in ("published", "rejected", "running", "failed", "pass", "fail", "something new"):
        assert f"</i>{status}</span>" in markup.badge(status)


def test_a_moment_shows_how_long_ago_and_when() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    shown = markup.ago(now - timedelta(hours=3), now)
    assert "3 h ago" in shown
    assert "2026-01-31 09:00:00 UTC" in shown
    assert "never" in markup.ago(None)


def test_bars_stay_within_their_frame() -> None:
    assert "width:50.00%" in markup.bar(5, 10)
    assert "width:100.00%" in markup.bar(15, 10)
    assert "<i" not in markup.bar(0, 10)
    assert "<i" not in markup.bar(1, 0)
    assert markup.sparkline([None, None], label="rows").count("<i") == 0
    assert markup.sparkline([0, 0], label="rows").count("height:0%") == 2
