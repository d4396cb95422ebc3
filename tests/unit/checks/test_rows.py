from __future__ import annotations

from lakegate.checks import parse_check
from lakegate.checks.rows import row_tests
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedRows

ROWS = AddedRows(table=TableIdentifier.parse("a.b"), ref="x", after_snapshot_id=None, snapshot_id=1)
SCHEMA = Schema(columns=(Column(name="id", type="long"), Column(name="contact", type="struct<`e-mail`: string>")))


def test_reasons_of_quarantined_rows_hold_no_masked_values() -> None:
    checks = [parse_check(text) for text in ("not_null(id)", "not_null('contact.`e-mail`')", "not_null(contact)")]
    tests = row_tests([("c", check) for check in checks], SCHEMA, ROWS, lambda _: (), masked=["E-Mail"])
    assert [test.shown for test in tests] == [{"id"}, set(), set()]
