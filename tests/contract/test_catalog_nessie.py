"""Nessie's catalog keeps the contract of every catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakegate.catalogs.nessie import NessieCatalog
from lakegate.catalogs.rules import ROOT_HASH
from lakegate.model.refs import Ref
from lakegate.testing.catalog import CatalogContract


@pytest.mark.jvm
class TestNessieCatalog(CatalogContract):
    warehouse = "s3://bucket/some where/lake"

    @pytest.fixture
    def catalog(self, nessie_uri: str) -> Iterator[NessieCatalog]:
        catalog = NessieCatalog(nessie_uri, self.warehouse, page_size=self.page_size)
        yield catalog
        catalog.close()

    @pytest.fixture
    def root(self, catalog: NessieCatalog) -> Ref:
        # Nessie's first commit, which holds nothing, is the hash of a constant: so is that of the catalog in memory.
        return catalog.get_ref(ROOT_HASH)
