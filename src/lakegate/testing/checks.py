"""Test your own check: find the rows that fail it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakegate.checks.parse import parse_check
from lakegate.checks.questions import FailingRows
from lakegate.checks.registry import find_check
from lakegate.checks.validation import validate_checks
from lakegate.model.checks import Check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def failing_rows(check: Check | str, frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a Spark DataFrame that fail a check, as an audit would find them.

    Args:
        check: A check of single rows, as a value or as text.
        frame: A DataFrame of any Spark session. Its columns are taken as the table's.

    Raises:
        CheckError: If the check doesn't fit these columns. An ingest would raise the same error.
        TypeError: If it checks keys or the number of rows instead of single rows.
    """
    from lakegate.spark.reader import iceberg_schema

    schema = iceberg_schema(frame.schema)
    (validated,) = validate_checks([parse_check(check) if isinstance(check, str) else check], schema)
    question = find_check(validated.kind).ask(validated, schema)
    if not isinstance(question, FailingRows):
        raise TypeError(f"{validated} isn't about single rows.")
    return [row.asDict(recursive=True) for row in frame.where(question.predicate).collect()]
