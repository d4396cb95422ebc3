"""Finding catalogs by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from lakegate.catalogs import ENTRY_POINT_GROUP, find_catalog
from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.errors import ConfigurationError
from lakegate.testing import MemoryCatalog


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        [
            EntryPoint("memory", "lakegate.testing.memory:MemoryCatalog", ENTRY_POINT_GROUP),
            EntryPoint("broken", "no_such_package:Catalog", ENTRY_POINT_GROUP),
        ]
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points.select(group=group))


def test_nessie_is_built_in() -> None:
    assert find_catalog("nessie") is NessieCatalog


def test_third_parties_are_found_by_entry_point(registered: None) -> None:
    found: object = find_catalog("memory")
    assert found is MemoryCatalog


def test_an_unknown_name_lists_the_known_ones(registered: None) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_catalog("glue")
    assert caught.value.hint == "Known catalogs: broken, iceberg, memory, nessie, sql."


def test_a_broken_package_is_reported(registered: None) -> None:
    with pytest.raises(ConfigurationError, match="no_such_package"):
        find_catalog("broken")
