"""What Spark says of values, where they aren't to be shown."""

from __future__ import annotations

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
from lakegate.wap.stage import hiding_values


@pytest.mark.parametrize("hides", [True, False])
def test_a_value_that_does_not_fit_is_not_quoted_where_values_are_hidden(hides: bool) -> None:
    from pyspark.errors import PySparkException

    text = "[CAST_INVALID_INPUT] The value '3000000000' of the type \"STRING\" cannot be cast."
    with (
        pytest.raises(SourceError, match="CAST_INVALID_INPUT" if hides else "couldn't read") as caught,
        hiding_values("rows of nyc.trips were written", hides=hides),
        spark_errors("writing", source=True),
    ):
        raise PySparkException(text)
    assert ("3000000000" in caught.value.message) is not hides


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
    assert caught.value.message == f"Spark couldn't read a table's file while working: {cause}."
    assert (caught.value.hint or "").endswith("lakegate verify" if "NotFound" in text else "lakegate verify --deep")


@pytest.mark.parametrize("query", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "(java.lang.IllegalArgumentException) [BUG] Expected sorted snapshot log entries.",
        "Invalid update timestamp 5: before last snapshot log entry at 9",
        "[BUG] Expected sorted previous metadata log entries.",
        "Invalid update timestamp 5: before the latest metadata log entry timestamp 9",
    ],
)
def test_a_clock_that_is_wrong_is_named(text: str, *, query: bool) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(ClockError, match="from the future") as caught, spark_errors("writing nyc.trips", query=query):
        raise PySparkException(text)
    assert "NTP" in str(caught.value.hint)
