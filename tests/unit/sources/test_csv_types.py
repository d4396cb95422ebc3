"""Types of CSV columns: never one that some value is not."""

from __future__ import annotations

import datetime as dt
import functools
import re

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakegate.sources.csv_types import Inference, infer
from support.examples import examples


def kind(*texts: str | None) -> str:
    return infer(pa.array(texts, pa.string()), Inference()).kind


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["true", "FALSE", "True"], "bool"),
        (["true", "1"], "string"),
        (["1", "true"], "string"),
        (["t"], "string"),
        (["1", "-5", "0", "-0", "9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808"], "string"),
        (["9007199254740993", "1.5"], "string"),
        (["9007199254740991", "1.5"], "double"),
        (["1", "2.5"], "double"),
        (["00501", "10001"], "string"),
        (["10001", "00501"], "string"),
        (["-01"], "string"),
        (["0x1F"], "string"),
        (["+4915112345"], "string"),
        ([" 5"], "string"),
        (["1_000"], "string"),
        (["1,5"], "string"),
        (["0.5", ".5", "5.", "-1e5", "1E-5", "0", "0e0", "-0.5"], "double"),
        (["00.5"], "string"),
        (["1.5", "NaN", "Inf", "-Infinity"], "double"),
        (["1.5", "nan"], "string"),
        (["1.5", "+Inf"], "string"),
        (["1e999"], "string"),
        (["1d"], "string"),
        (["2024-02-29", "0001-01-01", "9999-12-31"], "date32[day]"),
        (["2023-02-29"], "string"),
        (["2024-1-1"], "string"),
        (["0000-01-01"], "string"),
        (["0000-12-31 00:00:00"], "string"),
        (["0001-01-01T00:00:00+02:00"], "string"),
        (["20240101"], "int64"),
        (["2024-01-01", "2024-01-01 10:00:00"], "timestamp[us]"),
        (["2024-01-01T10:00:00.123456", "2024-01-01 10:00"], "timestamp[us]"),
        (["2024-01-01 10:00:00.123456000", None, "2024-01-01"], "timestamp[us]"),
        (["2024-01-01 10:00:00.123456789", None, "2024-01-01"], "string"),
        (["12345678901234567.5"], "string"),
        (["9007199254740993", "0.5"], "string"),
        (["2024-01-01 10:00:00.1234567891"], "string"),
        (["2024-01-01 24:00:00"], "string"),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00Z"], "string"),
        (["2024-01-01T10:00:00Z", "2024-01-01 10:00:00.5+02:00", "2024-01-01T10:00:00-0330"], "timestamp[us, tz=UTC]"),
        (["2024-01-01T10:00:00.123456000Z"], "timestamp[us, tz=UTC]"),
        (["2024-01-01T10:00:00.123456789Z"], "string"),
        (["2024-01-01T10:00Z"], "string"),
        (["2024-01-01T10:00:00+19:00"], "string"),
        (["2024-01-01T10:00:00Z", "2024-01-01"], "string"),
        (["2024-01-01T10:00:00 UTC"], "string"),
        ([None, "5", None], "int64"),
        ([None, None], "unknown"),
        ([], "unknown"),
        (["é", "5"], "string"),
    ],
)
def test_kinds(texts: list[str | None], expected: str) -> None:
    assert kind(*texts) == expected


@pytest.mark.parametrize("text", ["true", "2024-01-31T07:05:00Z", "2024-01-31T07:05:00+01:00"])
def test_words_for_missing_are_no_shorter_values(text: str) -> None:
    assert infer(pa.array([text, "NA", None, text]), Inference()) == infer(
        pa.array([text]), Inference(words=frozenset({"NA"}))
    )


def test_words_for_missing_are_missing_in_numbers_and_text_in_text() -> None:
    assert infer(pa.array(["NA", "1", "N/A"]), Inference()).kind == "int64"
    assert infer(pa.array(["NA", "NULL"]), Inference()).kind == "unknown"
    assert infer(pa.array(["NA", "Namibia"]), Inference()).kind == "string"


TEXTS = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-999, 999).map(str),
    st.floats().map(str),
    st.floats(allow_nan=False, width=16).map(str),
    st.sampled_from(["true", "False", "NaN", "Inf", "007", "-0", "1.", ".5", "x", " ", "+1", "-", "1e5", "0x10"]),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(dt.datetime.isoformat),
    st.datetimes(timezones=st.just(dt.UTC)).map(dt.datetime.isoformat),
    st.from_regex(
        re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-]1[0-9]:00)?)?"),
        fullmatch=True,
    ),
    st.text(st.sampled_from("0123456789.-+eEx:TZ "), min_size=1, max_size=8),
)


@settings(max_examples=examples(80, 400))
@given(st.lists(TEXTS, max_size=6))
@example(["9007199254740993", "0.5"])
@example(["2024-01-01", "2024-01-01T00:00:00Z"])
def test_a_column_is_what_its_values_are_one_by_one(texts: list[str | None]) -> None:
    singles = [infer(pa.array([text], pa.string()), Inference()) for text in texts]
    joined = functools.reduce(Inference.join, singles, Inference())
    assert kind(*texts) == joined.kind
    assert functools.reduce(Inference.join, reversed(singles), Inference()) == joined


@settings(max_examples=examples(60, 300))
@given(st.lists(TEXTS.filter(lambda text: text is not None), min_size=1, max_size=4))
def test_a_type_is_given_only_to_what_python_reads_so_too(texts: list[str]) -> None:
    found = kind(*texts)
    for text in texts:
        if found == "int64":
            assert -(2**63) <= int(text) < 2**63
        elif found == "double":
            float(text)
        elif found == "date32[day]":
            assert str(dt.date.fromisoformat(text)) == text
        elif found.startswith("timestamp"):
            parsed = dt.datetime.fromisoformat(text)
            assert (parsed.tzinfo is not None) == found.endswith("tz=UTC]")
