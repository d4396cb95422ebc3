"""The catalogs and journals that the contracts are asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from catalog_place import PAGE_SIZE, Place
from journals import Shelf, memory_shelf, postgres_shelf, sqlite_shelf
from lakegate.catalogs.memory import ROOT_HASH, MemoryCatalog
from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.protocols import Catalog, Journal


def _memory(request: pytest.FixtureRequest) -> Catalog:
    return MemoryCatalog()


def _nessie(request: pytest.FixtureRequest) -> Catalog:
    return NessieCatalog(request.getfixturevalue("nessie_uri"), "file:///lake", page_size=PAGE_SIZE)


@pytest.fixture(
    params=[pytest.param(_memory, id="memory"), pytest.param(_nessie, id="nessie", marks=pytest.mark.jvm)],
)
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    make: Callable[[pytest.FixtureRequest], Catalog] = request.param
    catalog = make(request)
    yield catalog
    catalog.close()


@pytest.fixture
def place(catalog: Catalog) -> Iterator[Place]:
    """A branch with nothing but one namespace: the branch is what ``main`` is in real life."""
    unique = uuid4().hex[:12]
    # Nessie's first commit, which holds nothing, is the hash of a constant: so is the fake's.
    root = catalog.get_ref(ROOT_HASH)
    branch = f"contract/{unique}/odd.name_-1"
    catalog.create_branch(branch, root)
    place = Place(catalog, branch, f"ns_{unique}", root)
    place.commit(namespaces=((place.namespace,),))
    yield place
    for ref in list(catalog.list_refs()):
        if unique in ref.name:
            catalog.delete_ref(ref)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """What journals of several processes share."""
    if request.param == "memory":
        made = memory_shelf()
    elif request.param == "sqlite":
        made = sqlite_shelf(tmp_path / "deep" / "journal.db")
    else:
        made = postgres_shelf(request.getfixturevalue("postgres"))
    yield made
    made.close()


@pytest.fixture
def journal(shelf: Shelf) -> Journal:
    """One of them."""
    return shelf.open()
