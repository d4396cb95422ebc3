"""Spark's exceptions become errors whose own message has no text of Spark's."""

from __future__ import annotations

import pickle

import pytest

from lakegate.errors import (
    ClockError,
    EngineError,
    EngineUnavailableError,
    LakegateError,
    QueryError,
    SourceError,
)
from lakegate.spark.failures import spark_errors


@pytest.mark.parametrize("options", [{}, {"query": True}, {"source": True}])
@pytest.mark.parametrize(
    "text",
    [
        "[CAST_INVALID_INPUT] The value 'hush-4711' of the type \"STRING\" cannot be cast.",
        "[DIVIDE_BY_ZERO] Division by 'hush-4711'.",
        "[USER_RAISED_EXCEPTION] Column 'amount' holds hush-4711, which an integer would round.",
        "[USER_RAISED_EXCEPTION] Column 'amount' holds hush-4711, which a double may round.",
        "Unsupported table change: 'hush-4711'",
        "Job aborted.\nCaused by: x.NessieForbiddenException: hush-4711",
        "Job aborted.\nCaused by: SdkClientException: hush-4711",
        "org.apache.iceberg.exceptions.NotFoundException: File does not exist: s3://w/name=hush-4711/a.parquet",
        "hush-4711",
    ],
)
def test_what_spark_says_is_only_in_an_errors_detail(text: str, options: dict[str, bool]) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(LakegateError) as caught, spark_errors("writing nyc.trips", **options):
        raise PySparkException(text)
    error = caught.value
    assert "hush-4711" in str(error.detail)
    stored = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (stored.message, stored.hint, stored.context) == (error.message, error.hint, error.context)
    for told in (str(error), repr(error), str(error.to_dict()), str(vars(stored))):
        assert "hush-4711" not in told


def test_a_value_that_a_column_cannot_hold_is_told_by_its_column() -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(SourceError, match="doesn't fit its column 'amount' while writing"):  # noqa: SIM117
        with spark_errors("writing", source=True):
            raise PySparkException("[USER_RAISED_EXCEPTION] Column 'amount' holds 1.5, which an integer would round.")


@pytest.mark.parametrize(
    ("kind", "text", "options", "expected"),
    [
        (
            "AnalysisException",
            "[UNRESOLVED_COLUMN] `nope` cannot be resolved.;\n'Filter ((error#1 = Connection refused) AND 'nope)",
            {"query": True},
            QueryError,
        ),
        ("ParseException", "[PARSE_SYNTAX_ERROR] x\n== SQL ==\n(SELECT 'GOAWAY' FRM t)", {"query": True}, QueryError),
        (
            "NumberFormatException",
            '[CAST_INVALID_INPUT] The value \'Connection reset\' of the type "STRING" cannot be cast to "INT".',
            {"source": True},
            SourceError,
        ),
        (
            "SparkRuntimeException",
            '[CAST_INVALID_INPUT] The value \'Socket closed\' of the type "STRING" cannot be cast to "BOOLEAN".',
            {"source": True},
            SourceError,
        ),
        (
            "NumberFormatException",
            "[CAST_INVALID_INPUT] The value 'GOAWAY' cannot be cast to \"INT\".",
            {},
            EngineError,
        ),
        ("SparkRuntimeException", "[USER_RAISED_EXCEPTION] failed to connect", {"query": True}, QueryError),
        (
            "AnalysisException",
            "[FAILED_JDBC.UNCLASSIFIED] x\nCaused by: java.net.ConnectException: Connection refused",
            {"query": True},
            EngineUnavailableError,
        ),
        ("SparkException", "stopped SparkContext", {"query": True}, EngineUnavailableError),
    ],
)
def test_words_that_spark_quotes_do_not_say_that_a_server_is_away(
    kind: str, text: str, options: dict[str, bool], expected: type[LakegateError]
) -> None:
    from pyspark.errors.exceptions import connect

    with pytest.raises(expected), spark_errors("working", **options):
        raise getattr(connect, kind)(text)


_TASK = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
_TASK += "stage 1.0 (TID 1) (localhost executor driver): "


@pytest.mark.parametrize("query", [True, False])
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"{_TASK}org.apache.iceberg.exceptions.NotFoundException: File does not exist: file:/w/a.parquet\n\tat b",
            "File does not exist: file:/w/a.parquet",
        ),
        (
            f"{_TASK}java.lang.RuntimeException: footer is too large\nat org.apache.iceberg.spark.source.BaseReader",
            "footer is too large",
        ),
        (
            "(org.apache.iceberg.exceptions.NotFoundException) Failed to open input stream for file: s3://w/snap.avro",
            "Failed to open input stream for file: s3://w/snap.avro",
        ),
    ],
)
def test_a_tables_file_that_cannot_be_read_is_named(text: str, cause: str, *, query: bool) -> None:
    from pyspark.errors.exceptions.connect import SparkException

    with pytest.raises(QueryError if query else EngineError) as caught, spark_errors("working", query=query):
        raise SparkException(text)
    assert caught.value.message == "Spark couldn't read a table's file while working: SparkException."
    assert caught.value.detail == f"{cause}."
    assert (caught.value.hint or "").endswith("admin verify" if "NotFound" in text else "admin verify --deep")


@pytest.mark.parametrize("query", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "(java.lang.IllegalArgumentException) [BUG] Expected sorted snapshot log entries.",
        "Invalid update timestamp 5: before last snapshot log entry at 9",
        "[BUG] Expected sorted previous metadata log entries.",
        "Invalid update timestamp 5: before the latest metadata log entry timestamp 9",
        "Invalid snapshot timestamp 1795896000000: before last snapshot timestamp 1795899600000",
    ],
)
def test_a_clock_that_is_wrong_is_named(text: str, *, query: bool) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(ClockError, match="from the future") as caught, spark_errors("writing nyc.trips", query=query):
        raise PySparkException(text)
    assert "NTP" in str(caught.value.hint)
