"""The state machine proof against real Nessie: the same histories, its rules instead of those of the fake."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from uuid import uuid4

import pytest

from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.model.refs import Ref
from proofs.state_machine import on_catalog, prove

pytestmark = pytest.mark.jvm

HISTORIES = 25
SEED = 20261121


@pytest.fixture
def catalog(nessie_uri: str) -> Iterator[NessieCatalog]:
    opened = NessieCatalog(nessie_uri, "file:///lake")
    yield opened
    opened.close()


def beginning(catalog: NessieCatalog) -> Ref:
    """Return the commit before all others: other tests have published to main."""
    main = catalog.get_ref("main")
    first = next(iter(deque(catalog.history("main"), maxlen=1)), None)
    return main if first is None else Ref(name="main", hash=first.parent or main.hash, kind="branch")


def test_histories_at_random_hold_on_nessie(catalog: NessieCatalog) -> None:
    root = f"proof{uuid4().hex[:8]}"
    catalog.create_branch(root, beginning(catalog))
    numbers = itertools.count(1)

    result = prove(
        HISTORIES,
        SEED,
        make=lambda: on_catalog(catalog, root, numbers),
        longest=4,
        on_main=False,
        shrink=False,
    )

    assert not result.failures, "\n\n".join(result.failures)
    assert result.cases >= HISTORIES
