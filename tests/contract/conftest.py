"""The catalogs and journals that the contracts are asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from catalog_place import HERE, PAGE_SIZE, REMOTE, Place
from journals import Shelf, memory_shelf, postgres_shelf, sqlite_shelf
from lakegate.catalogs.memory import ROOT_HASH, MemoryCatalog
from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.protocols import Catalog, Journal

if TYPE_CHECKING:
    from s3_server import S3Server
    from s3_warehouse import S3Warehouse


def _memory(request: pytest.FixtureRequest) -> Catalog:
    return MemoryCatalog()


def _nessie(request: pytest.FixtureRequest) -> Catalog:
    return NessieCatalog(request.getfixturevalue("nessie_uri"), REMOTE, page_size=PAGE_SIZE)


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
    # No catalog looks at tables' files, so that one suite does for both kinds of location.
    place = Place(catalog, branch, f"ns_{unique}", root, HERE if isinstance(catalog, MemoryCatalog) else REMOTE)
    place.commit(namespaces=((place.namespace,),))
    yield place
    for ref in list(catalog.list_refs()):
        if unique in ref.name:
            catalog.delete_ref(ref)


@pytest.fixture
def s3_warehouse(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Warehouse:
    """An empty warehouse on a real S3 server."""
    from s3_warehouse import new_warehouse  # noqa: PLC0415 - loads boto3

    return new_warehouse(s3_server, monkeypatch)


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
