"""What the suite relies on of its own tools."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="groups are for processes side by side")
@pytest.mark.xdist_group("suite")
def test_tests_of_a_group_stay_in_one_process(request: pytest.FixtureRequest) -> None:
    # Its scheduler reads the group from here; a version of pytest that it doesn't know leaves that out, silently.
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@suite")
