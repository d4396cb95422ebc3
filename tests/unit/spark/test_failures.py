"""What Spark says of values, where they aren't to be shown."""

from __future__ import annotations

import pytest

from lakegate.errors import SourceError
from lakegate.spark.failures import translated
from lakegate.wap.stage import hiding_values


@pytest.mark.parametrize("hides", [True, False])
def test_a_value_that_does_not_fit_is_not_quoted_where_values_are_hidden(hides: bool) -> None:
    from pyspark.errors import PySparkException

    text = "[CAST_INVALID_INPUT] The value '3000000000' of the type \"STRING\" cannot be cast."
    with (
        pytest.raises(SourceError, match="CAST_INVALID_INPUT" if hides else "couldn't read") as caught,
        hiding_values(hides, "rows of nyc.trips were written"),
        translated("writing", source=True),
    ):
        raise PySparkException(text)
    assert ("3000000000" in caught.value.message) is not hides
