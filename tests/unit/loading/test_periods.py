"""Periods of time, and the dates in file paths."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.errors import InputError
from lakegate.loading.periods import (
    UNITS,
    Period,
    Template,
    TimeRange,
    Unit,
    is_template,
    parse_period,
    parse_range,
)

moments = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2068, 12, 31), timezones=st.just(UTC))
units = st.sampled_from(UNITS)
wildcards = st.sampled_from(["", "*", "green_", "part-?_", "[ab]", "a b+c (1)"])
# Each tells a time to its own unit; what is between the fields is drawn.
dates = st.sampled_from(
    ["%Y", "%Y/%m", "%Y-%m-%d", "%Y%m%d", "%Y/%m/%d/x_%Y-%m-%d", "%y.%m.%d", "%Y-%j", "%Y/%m/%d/%H"]
)
TEMPLATE_UNITS: dict[str, Unit] = {"%Y": "year", "%Y/%m": "month", "%Y/%m/%d/%H": "hour"}


def filled(text: str) -> str:
    """Return a path that a pattern without fields matches."""
    return text.replace("[ab]", "a").replace("*", "some").replace("?", "7")


@given(moments, dates, wildcards)
def test_a_template_reads_back_the_dates_it_formats(moment: datetime, fields: str, wildcard: str) -> None:
    template = Template(f"s3://bucket/{wildcard}/{fields}{wildcard}.csv")
    path = filled(moment.strftime(template.text))
    assert template.read(path) == Period.of(moment, TEMPLATE_UNITS.get(fields, "day"))
    assert template.unit == TEMPLATE_UNITS.get(fields, "day")


@given(moments, dates, moments, st.integers(0, 4000))
def test_globs_match_the_files_of_a_range_and_few_others(
    moment: datetime, fields: str, start: datetime, days: int
) -> None:
    template = Template(f"trips/{fields}_*.csv")
    wanted = TimeRange(start, start + timedelta(days=days, seconds=1))
    path = filled(moment.strftime(template.text))
    listed = any(fnmatchcase(path, glob) for glob in template.globs(wanted))
    period = template.read(f"/data/{path}")
    assert period is not None
    if wanted.overlaps(period):
        assert listed
    elif listed and fields != "%Y-%j":
        month = period.widened("month")
        assert TimeRange(month.start, month.end).overlaps(Period.of(start, "second")) or wanted.overlaps(month)


@given(moments, units)
def test_a_period_contains_its_moment_and_survives_text(moment: datetime, unit: Unit) -> None:
    period = Period.of(moment, unit)
    assert period.start <= moment < period.end
    assert parse_period(str(period)) == period
    assert Period.of(period.end, unit).start == period.end
    assert all(period.widened(wider).start <= period.start for wider in UNITS)


@pytest.mark.parametrize(
    ("since", "until", "start", "end"),
    [
        ("2024-01-01", "2024-01-31", "2024-01-01T00:00", "2024-02-01T00:00"),
        ("2024-01", "2024-02", "2024-01-01T00:00", "2024-03-01T00:00"),
        ("2023", "2024", "2023-01-01T00:00", "2025-01-01T00:00"),
        ("2024-01-31T06", "2024-01-31T06", "2024-01-31T06:00", "2024-01-31T07:00"),
        ("2024-01-31 06:30", "2024-01-31T06:30:00+02:00", "2024-01-31T06:30", None),
        (date(2024, 1, 31), datetime(2024, 1, 31, 6, tzinfo=UTC), "2024-01-31T00:00", "2024-01-31T06:00:01"),
        ("9999-12-31", "9999-12-31", "9999-12-31T00:00", "9999-12-31T23:59:59.999999"),
    ],
)
def test_a_range_includes_both_ends(since: str | date, until: str | date, start: str, end: str | None) -> None:
    if end is None:
        with pytest.raises(InputError, match="before it starts"):
            parse_range(since, until)
        return
    assert parse_range(since, until) == TimeRange(*(datetime.fromisoformat(f"{text}+00:00") for text in (start, end)))


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2024-13", "2024-02-30", "24-01-01", "2024-1-1", "0000", "2024-01-01T25"]
)
def test_an_invalid_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"'{text}'")):
        parse_period(text)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("t/%Y-%m-%d.csv", "/t/2024-02-30.csv"),
        ("t/%Y/%Y-%m.csv", "/t/2023/2024-01.csv"),
        ("t/%Y-%m.csv", "/t/2024-01.csv.bak"),
        ("t/%Y-%m-%d/%j.csv", "/t/2024-01-31/032.csv"),
        ("t/%Y-%j.csv", "/t/2023-366.csv"),
        ("t/%Y.csv", "/t/x/2024.csv"),
    ],
)
def test_a_path_that_does_not_match_its_template_has_no_date(template: str, path: str) -> None:
    assert Template(template).read(path) is None


@pytest.mark.parametrize(
    ("template", "path", "told"),
    [
        ("~/t/%Y/**/*.csv", "/home/me/t/2024/a/b/c.csv", "2024"),
        ("../t/%Y/%m", "/data/t/2024/03/deep/a.csv", "2024-03"),
        ("./t/%y%m%d.csv", "/data/t/690101.csv", "1969-01-01"),
        ("100%%/%Y.csv", "/data/100%/2024.csv", "2024"),
        ("s3://bucket/%Y-%m-%dT%H%M%S.csv", "s3://bucket/2024-01-31T070509.csv", "2024-01-31T07:05:09"),
    ],
)
def test_templates_match_in_any_folder(template: str, path: str, told: str) -> None:
    assert str(Template(template).read(path)) == told


@pytest.mark.parametrize(
    ("template", "why"),
    [("t/%Y-%d.csv", "has no month"), ("t/%Y-%m_%H.csv", "has no day"), ("t/%Y%q.csv", "unknown field %q")],
)
def test_templates_that_cannot_be_read_say_why(template: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Template(template)


def test_only_paths_with_a_year_are_templates() -> None:
    assert is_template("t/%Y.csv")
    assert not is_template("file:///t/%d0%bf.csv")
    assert not is_template("t/10%.csv")
