from __future__ import annotations

from typing import Any

import pytest

from lakegate.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailableError,
    InputError,
    LakegateError,
    QueryError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.model.batch import FileFormat
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, PartitionTransform, Schema
from lakegate.model.tables import AddedRows
from lakegate.spark import engine as engine_module
from lakegate.spark.failures import MAY_ROUND, spark_errors
from lakegate.wap.schema_fit import fit

SCHEMA = Schema(
    columns=(
        Column(name="at", type="timestamp"),
        Column(name="day", type="date"),
        Column(name="Tags", type="list<int>"),
    )
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("StatusCode.UNAVAILABLE: failed to connect to all addresses", EngineUnavailableError),
        ("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid", EngineUnavailableError),
        ("[INVALID_HANDLE.OPERATION_ABANDONED] Operation was considered abandoned", EngineUnavailableError),
        ("[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND from the server", EngineUnavailableError),
        ("StatusCode.UNAUTHENTICATED Invalid auth token", ConfigurationError),
        ("(org.projectnessie.client.http.HttpClientException) Connection refused", EngineUnavailableError),
        ("(java.net.ConnectException) Connection refused", EngineUnavailableError),
        ("(java.net.ConnectException) on s3a: awssdk.SdkClientException: Connection refused", StorageUnavailableError),
        ("(java.net.SocketException) on s3a: AWSClientIOException: Connection reset", StorageUnavailableError),
        ("(awssdk.S3Exception) Access Denied (Service: S3, Status Code: 403, Request ID: 1)", ConfigurationError),
        ("(java.io.IOException) No space left on device", EngineError),
        ("(java.lang.IllegalStateException) whatever", EngineError),
        ("[_LEGACY_ERROR_TEMP_2045] Unsupported table change: Cannot change column type: id", QueryError),
    ],
)
def test_what_spark_says_becomes_an_error_that_says_what_was_done(text: str, expected: type[LakegateError]) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(expected, match=r"writing nyc\.trips"), spark_errors("writing nyc.trips"):
        raise PySparkException(text)


def test_a_whole_number_that_a_double_may_round_is_told_with_its_column() -> None:
    from pyspark.errors import PySparkException

    text = f"[USER_RAISED_EXCEPTION] Column 'n' holds 9007199254740993, {MAY_ROUND}. SQLSTATE: P0001"
    told = pytest.raises(SourceError, match="its column 'n' while writing")
    with told as caught, spark_errors("writing", source=True):
        raise PySparkException(text)
    assert caught.value.hint is not None
    assert "long" in caught.value.hint


def test_null_where_a_table_takes_none_is_the_file_s_fault() -> None:
    from pyspark.errors import PySparkException

    text = "[NOT_NULL_ASSERT_VIOLATION] NULL value appeared in non-nullable field: \nIf the schema is inferred"
    with (
        pytest.raises(SourceError, match="NULL in a required column") as caught,
        spark_errors("writing nyc.trips", source=True),
    ):
        raise PySparkException(text)
    assert "DROP NOT NULL" in str(caught.value.hint)


def test_a_file_that_cannot_be_read_is_the_files_fault_only_where_files_are_read() -> None:
    from pyspark.errors import PySparkException

    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///x.parquet."
    with pytest.raises(SourceError, match=r"FAILED_READ_FILE\.NO_HINT"), spark_errors("writing", source=True):
        raise PySparkException(text)
    with pytest.raises(EngineError), spark_errors("auditing"):
        raise PySparkException(text)


def test_a_refused_query_is_the_users_and_says_what_was_meant() -> None:
    from pyspark.errors import PySparkException

    text = "[UNRESOLVED] `nope` cannot be resolved. Did you mean one of the following? [`a`, `b`]. SQLSTATE: 42703; x"
    with pytest.raises(QueryError, match=r"rejected the query: UNRESOLVED\.$") as caught, spark_errors("x", query=True):
        raise PySparkException(text)
    assert caught.value.detail == "`nope` cannot be resolved."
    assert caught.value.hint == "Did you mean one of `a`, `b`?"
    with pytest.raises(QueryError) as caught, spark_errors("x", query=True):
        raise PySparkException(text.replace(", `b`", ""))
    assert caught.value.hint == "Did you mean `a`?"


@pytest.mark.parametrize(
    ("text", "name", "column"),
    [
        ("days(at)", "days", "at"),
        ("hours( at )", "hours", "at"),
        ("bucket(4, day)", "bucket", "day"),
        ("day", "identity", "day"),
    ],
)
def test_partition_transforms(text: str, name: str, column: str) -> None:
    transform = PartitionTransform.parse(text)
    transform.validate_for(SCHEMA)
    assert (transform.name, transform.column) == (name, column)


@pytest.mark.parametrize("text", ["", "weeks(at)", "days(at", "bucket(at)", "days(1, at)", "days()", "x(y(z))"])
def test_what_is_no_transform_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="Invalid partitioning"):
        PartitionTransform.parse(text)


@pytest.mark.parametrize(
    ("text", "words"), [("days(att)", "no such column"), ("hours(day)", "type date"), ("Tags", "list")]
)
def test_transforms_that_do_not_fit_the_schema_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        PartitionTransform.parse(text).validate_for(SCHEMA)


@pytest.mark.parametrize(
    ("batch", "table", "file_format", "fits"),
    [
        ("int", "long", "parquet", True),
        ("long", "int", "parquet", False),
        ("float", "double", "parquet", True),
        ("long", "double", "parquet", True),
        ("decimal(5, 2)", "decimal(10, 2)", "parquet", True),
        ("decimal(10, 2)", "decimal(5, 2)", "parquet", False),
        ("decimal(5, 2)", "decimal(10, 3)", "parquet", False),
        ("timestamp", "timestamptz", "parquet", False),
        ("long", "int", "csv", True),
        ("double", "decimal(10, 2)", "csv", True),
        ("long", "string", "csv", True),
        ("string", "double", "csv", False),
        ("double", "long", "csv", False),
        ("long", "int", "json", True),
        ("decimal(38, 0)", "decimal(20, 0)", "json", True),
        ("double", "decimal(9, 2)", "excel", True),
        ("string", "date", "excel", False),
    ],
)
def test_which_types_fit(batch: str, table: str, file_format: FileFormat, fits: bool) -> None:
    name = TableIdentifier.parse("a.b")
    schemas = (Schema(columns=(Column(name="X", type=batch),)), Schema(columns=(Column(name="x", type=table),)))
    if fits:
        fit(*schemas, name=name, file_format=file_format)
    else:
        with pytest.raises(InputError, match=r"doesn't fit a\.b"):
            fit(*schemas, name=name, file_format=file_format)


def test_examples_hide_a_struct_with_a_masked_field() -> None:
    from pyspark.sql.types import ArrayType, LongType, StringType, StructType

    contact = ArrayType(StructType().add("email", StringType()))
    schema = StructType().add("id", LongType()).add("contact", contact).add("contact.email", StringType())

    class Examples:
        def __init__(self) -> None:
            self.schema = schema

        def selectExpr(self, *columns: str) -> Any:
            return columns

    rows = AddedRows(
        table=TableIdentifier.parse("a.b"), ref="x", after_snapshot_id=None, snapshot_id=1, masked=("contact.Email",)
    )
    assert engine_module.select_shown(Examples(), rows) == (
        "`id`", "'•••' AS `contact`", "'•••' AS `contact.email`"
    )  # fmt: skip


def test_an_error_names_sparks_condition() -> None:
    from pyspark.errors import PySparkException

    text = "(org.apache.spark.SparkNumberFormatException) [CAST_INVALID_INPUT] The value '[NO]' cannot be cast"
    with pytest.raises(EngineError) as caught, spark_errors("auditing a.b"):
        raise PySparkException(text)
    assert caught.value.context == {"condition": "CAST_INVALID_INPUT"}
