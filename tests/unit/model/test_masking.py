from __future__ import annotations

import pytest

from lakegate.model.schema import MASK, is_masked, masked_row
from lakegate.model.types import nested_fields

CONTACT = nested_fields("struct<email: string, phones: list<struct<nr: string>>, at: map<string, struct<zip: string>>>")


@pytest.mark.parametrize("pattern", ["contact", "EMAIL", "contact.email", "nr", "phones.nr", "at.*", "contact.at.zip"])
def test_a_column_is_masked_whole_for_a_field_in_it(pattern: str) -> None:
    assert is_masked([pattern], "Contact", CONTACT)


def test_a_field_is_masked_for_what_it_is_in_and_by_its_name_without_backticks() -> None:
    assert is_masked(["contact.at"], "contact.at.zip")
    assert is_masked(["at"], "contact.at.zip")
    assert is_masked(["e-mail"], "contact.`e-mail`")
    assert not is_masked(["mail", "contact.zip", "phone"], "contact.`e-mail`", CONTACT)


def test_a_value_is_masked_for_a_field_in_it() -> None:
    row = {"id": 1, "contact": {"at": [{"zip": "1"}]}, "tags": ["zip"], "other": None}
    assert masked_row(["ZIP"], row) == {**row, "contact": MASK}
    assert masked_row(["contact.at"], row) == {**row, "contact": MASK}
    assert masked_row(["contact.zip"], row) == row


def test_values_in_the_path_of_a_data_file_are_masked() -> None:
    row = {"_file": "s3://lake/a=b/data/e%2Dmail=x%40y.z/day=2026-01-31/0001=2.parquet", "path": "/e-mail=x/1"}
    hidden = f"s3://lake/a={MASK}/data/e%2Dmail={MASK}/day={MASK}/0001=2.parquet"
    assert masked_row(["e-mail"], row) == {**row, "_file": hidden}
    assert masked_row([], row) == row
    assert masked_row(["*"], row) == {"_file": MASK, "path": MASK}
    assert masked_row(["e-mail"], {"_file": None}) == {"_file": None}
