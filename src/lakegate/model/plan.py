"""What an ingest would do, before it does anything."""

from __future__ import annotations

from lakegate.model.base import Value
from lakegate.model.journal import Claim
from lakegate.model.run import WriteRequest
from lakegate.model.schema import Schema


class IngestPlan(Value):
    """A request that has passed every check that needs no write.

    Attributes:
        request: What would be run.
        exists: Whether the table exists on the target.
        table_schema: The table's columns, as they are or as they would be created.
        descriptions: One sentence for each check of the request, in order.
        known: Which of the files are not new to the table; filled in for those who only want to look.
    """

    request: WriteRequest
    exists: bool
    table_schema: Schema
    descriptions: tuple[str, ...] = ()
    known: Claim = Claim()
