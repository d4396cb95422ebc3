"""Charts: drawn in the theme's colours, distinguishable without colour, and described in words.

Names and values from data reach a chart only as data, in columns named here. Vega would read a path or a type into some
column names.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import streamlit as st

from lakegate.dashboard.ui.markup import clipped
from lakegate.model.rows import json_safe
from lakegate.progress import one_line

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["bars", "line", "points"]
VegaType = Literal["Q", "T", "N"]
"""Quantitative, temporal or nominal."""
_HEIGHT = 220
_LONGEST = 60
_FEW_POINTS = 60
_MOST_BARS = 100
_TICKS = 10


@dataclass(frozen=True)
class ChartBar:
    """One bar of a chart: its time, value and kind, and text to show on hover."""

    at: datetime
    value: float
    kind: str
    about: str = ""


def short(text: object) -> str:
    r"""Return text from data, shortened for a chart's axis or legend.

    Example:
        >>> short("a\u202eb")
        'a\\u202eb'
    """
    return clipped(text, longest=_LONGEST)


def plain(value: object) -> str:
    """Return a value from data as the text of a cell.

    Example:
        >>> plain({"a": 1}), plain(None)
        ('{"a": 1}', '')
    """
    safe = json_safe(value)
    if safe is None:
        return ""
    return one_line(json.dumps(safe, ensure_ascii=False) if isinstance(safe, (list, dict)) else safe)


def types_of(table: pa.Table) -> dict[str, VegaType]:
    """Return Vega's type of each column of a result. Columns that a chart can't use are left out."""
    import pyarrow as pa

    found: dict[str, VegaType] = {}
    for field in table.schema:
        kind = field.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            found[field.name] = "Q"
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            found[field.name] = "T"
        elif not pa.types.is_nested(kind):
            found[field.name] = "N"
    return found


def bars(found: Sequence[ChartBar], *, kinds: Sequence[str], description: str) -> None:
    """Draw bars of row counts side by side.

    Args:
        found: The bars, oldest first.
        kinds: All kinds; each gets its own colour.
        description: What the chart shows, for screen readers.
    """
    rows: list[dict[str, Any]] = [
        {"place": place, "when": _when(bar.at), "value": bar.value, "kind": bar.kind, "about": bar.about}
        for place, bar in enumerate(found)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("place:O", axis=_time_axis([bar.at for bar in found])),
            y=alt.Y(
                "value:Q",
                title="rows",
                stack=None,
                scale=_scale([0, *(bar.value for bar in found)]),
                axis=alt.Axis(format="~s", tickMinStep=1),
            ),
            color=alt.Color("kind:N", scale=alt.Scale(domain=list(kinds)), legend=_legend()),
            tooltip=[
                alt.Tooltip("when:N", title="UTC"),
                alt.Tooltip("value:Q", title="rows", format=","),
                alt.Tooltip("kind:N", title="what"),
                alt.Tooltip("about:N", title="about"),
            ],
        )
    )
    _draw(chart, description)


def lines(found: Mapping[str, Sequence[tuple[datetime, float | None]]], *, title: str, description: str) -> None:
    """Draw a line for each name, of shares from 0 to 1, in percent.

    Args:
        found: Points by name, oldest first; ``None`` leaves a gap.
    """
    times = sorted({at for points in found.values() for at, _ in points})
    place = {at: number for number, at in enumerate(times)}
    rows: list[dict[str, Any]] = [
        {"place": place[at], "when": _when(at), "value": value, "name": short(name)}
        for name, points in found.items()
        for at, value in points
    ]
    known = [row["value"] for row in rows if row["value"] is not None]
    names = list(map(short, found))
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=len(times) <= _FEW_POINTS, strokeWidth=2)
        .encode(
            x=alt.X("place:O", axis=_time_axis(times)),
            y=alt.Y("value:Q", title=title, scale=_scale([0, *known]), axis=alt.Axis(format=".1%")),
            color=alt.Color("name:N", sort=names, legend=_legend()),
            # Colour alone wouldn't distinguish the lines for everybody.
            strokeDash=alt.StrokeDash("name:N", sort=names, legend=_legend()),
            tooltip=[
                alt.Tooltip("when:N", title="UTC"),
                alt.Tooltip("name:N", title="column"),
                alt.Tooltip("value:Q", title=title, format=".2%"),
            ],
        )
    )
    _draw(chart, description)


def ranges(found: Sequence[tuple[datetime, Any, Any]], *, title: str, description: str) -> None:
    """Draw lower and upper bounds over time, of numbers or ISO 8601 times."""
    is_number = all(isinstance(bound, (int, float)) for _, *bounds in found for bound in bounds)
    rows: list[dict[str, Any]] = [
        {
            "place": place,
            "when": _when(at),
            "low": low if is_number else _milliseconds(low),
            "high": high if is_number else _milliseconds(high),
            "lowest": str(low),
            "highest": str(high),
        }
        for place, (at, low, high) in enumerate(found)
    ]
    extent = [row[side] for row in rows for side in ("low", "high")]
    kind = "Q" if is_number else "T"
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(cornerRadius=2, minBandSize=3)
        .encode(
            x=alt.X("place:O", axis=_time_axis([at for at, _, _ in found])),
            y=alt.Y(f"low:{kind}", title=title, scale=_scale(extent, kind="linear" if is_number else "utc")),
            y2="high",
            tooltip=[
                alt.Tooltip("when:N", title="UTC"),
                alt.Tooltip("lowest:N", title="lowest"),
                alt.Tooltip("highest:N", title="highest"),
            ],
        )
    )
    _draw(chart, description)


def free(
    rows: Sequence[Mapping[str, Any]], *, kind: Kind, x: str, ys: Sequence[str], types: Mapping[str, VegaType]
) -> None:
    """Draw a query's result.

    Args:
        types: Vega's type of each column: ``Q``, ``T`` or ``N``.
    """
    distinct = {plain(row[x]) for row in rows}
    as_names = types[x] == "N" or (kind == "bars" and len(distinct) <= _MOST_BARS)
    data = []
    for row in rows:
        place: Any = short(plain(row[x])) if as_names else _x_value(row[x], types[x])
        data += [{"x": place, "y": _json_number(row[y]), "name": short(y)} for y in ys if place is not None]
    mark = {"bars": "bar", "line": "line", "points": "point"}[kind]
    chart: Any = getattr(alt.Chart(alt.InlineData(values=data)), f"mark_{mark}")()
    color = alt.Color("name:N", sort=[short(y) for y in ys], legend=_legend() if len(ys) > 1 else None)
    x_kind: Any = "O" if as_names else types[x]
    x_axis = alt.X(
        f"x:{x_kind}",
        title=short(x),
        sort=None,
        axis=alt.Axis(labelOverlap="greedy", labelLimit=120),
        scale=alt.Undefined
        if as_names
        else _scale([one["x"] for one in data], kind="utc" if types[x] == "T" else "linear"),
    )
    y_axis = alt.Y(
        "y:Q",
        title=short(ys[0]) if len(ys) == 1 else None,
        stack="zero" if kind == "bars" else None,
        scale=_scale(_stack_extents(data) if kind == "bars" else [one["y"] for one in data if one["y"] is not None]),
    )
    tooltip = [
        alt.Tooltip(f"x:{x_kind}", title="x"),
        alt.Tooltip("y:Q", title="y", format=","),
        alt.Tooltip("name:N", title="column"),
    ]
    _draw(chart.encode(x=x_axis, y=y_axis, color=color, tooltip=tooltip), "The result of the query")


def _stack_extents(data: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the heights and depths that the stacked bars reach."""
    sums: dict[tuple[Any, bool], float] = defaultdict(float)
    for one in data:
        sums[one["x"], (one["y"] or 0) < 0] += one["y"] or 0
    return [0, *sums.values()]


def _x_value(value: Any, kind: VegaType) -> float | int | None:
    if kind == "Q" or value is None:
        return _json_number(value)
    try:
        return _milliseconds(plain(value))
    except ValueError:  # a date beyond Python's range
        return None


def _milliseconds(text: str) -> float:
    """Return an ISO 8601 date or time (UTC by default) in milliseconds, as Vega expects."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000


def _scale(values: Sequence[float], *, kind: Literal["linear", "utc"] = "linear") -> alt.Scale:
    """Return a scale that fits all values. Vega would compute one, but warns until it has the data."""
    low, high = min(values, default=0), max(values, default=1)
    domain = [low, high if high > low else low + 1]
    if kind == "utc":
        return alt.Scale(type="utc", domain=domain)
    return alt.Scale(type="linear", domain=domain, nice=True, zero=False)


def _json_number(value: Any) -> float | int | None:
    """Return a number that JSON can hold; ``None`` for NaN and infinities."""
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _when(at: datetime) -> str:
    return f"{at.astimezone(UTC):%m-%d %H:%M}"


def _time_axis(times: Sequence[datetime]) -> alt.Axis:
    """Return an axis of positions, labelled with the times of a few of them."""
    # A Vega expression built from formatted times only, never from data.
    labels = ",".join(f"'{_when(at)}'" for at in times)
    every = max(1, len(times) // _TICKS)
    return alt.Axis(
        title=None,
        values=list(range(0, len(times), every)),
        labelExpr=f"[{labels}][datum.value]",
        labelAngle=0,
        labelOverlap="greedy",
        ticks=False,
    )


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", title=None, labelLimit=220, columns=3)


def _draw(chart: Any, description: str) -> None:
    st.altair_chart(chart.properties(height=_HEIGHT), width="stretch", alt=description)
