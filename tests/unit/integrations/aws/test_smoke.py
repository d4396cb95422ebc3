"""Names that `deploy --smoke` and the function share."""

from __future__ import annotations

from lakegate.integrations.aws import inspection
from lakegate.integrations.aws_lambda import work


def test_both_sides_name_the_same_namespace() -> None:
    assert inspection.NAMESPACE == work.CANARY_NAMESPACE
