"""The journals and warehouses that the contracts are asked of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.journals import Actor, Shelf, memory_shelf, postgres_shelf, sqlite_shelf

if TYPE_CHECKING:
    from support.s3_server import S3Server
    from support.s3_warehouse import S3Warehouse


@pytest.fixture
def s3_warehouse(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Warehouse:
    """An empty warehouse on a real S3 server."""
    from support.s3_warehouse import new_warehouse

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
def journal(shelf: Shelf) -> Actor:
    """One of them."""
    return shelf.open()
