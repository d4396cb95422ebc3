"""What `deploy --smoke` and the function call the same."""

from __future__ import annotations

from lakegate.integrations.aws import smoke
from lakegate.integrations.aws_lambda import work


def test_both_sides_name_the_same_namespace() -> None:
    assert smoke.NAMESPACE == work.CANARY_NAMESPACE
