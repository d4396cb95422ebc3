"""What an ingest would do."""

from __future__ import annotations

from lakegate.model.base import Value
from lakegate.model.journal import Claim
from lakegate.model.request import IngestRequest
from lakegate.model.schema import Schema


class IngestPlan(Value):
    """A request that passed all validation that needs no write.

    Attributes:
        request: The request.
        exists: Whether the table exists on the target.
        table_schema: The table's columns, as they are or would be created.
        descriptions: One sentence for each check, in order.
        known: The files that aren't new to the table. Only :meth:`lakegate.Lake.plan` fills it in.
    """

    request: IngestRequest
    exists: bool
    table_schema: Schema
    descriptions: tuple[str, ...] = ()
    known: Claim = Claim()
