"""Lakes that the dashboard's tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from lakegate.checks import parse_checks
from lakegate.config import Settings
from lakegate.dashboard.model import ReadModel
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run, new_run_id
from lakegate.wap.ingest import ingest
from support.big_lake import BigLake, big_lake
from support.fakes import FakeLakehouse, Row

Ingest = Callable[..., Run]


@pytest.fixture(scope="session")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigLake]:
    """A lake of 150 runs with real metadata. Tests don't change it."""
    made = big_lake(tmp_path_factory.mktemp("big-lake"), runs=150, tables=6, branches=28)
    yield made
    made.close()


def model_of(house: FakeLakehouse, **settings: object) -> ReadModel:
    return ReadModel(
        catalog=lambda: house.catalog,
        reader=lambda: house,
        journal=lambda: house.journal,
        settings=Settings.model_validate(settings),
    )


@pytest.fixture
def model(house: FakeLakehouse) -> ReadModel:
    return model_of(house)


@pytest.fixture
def load(house: FakeLakehouse) -> Ingest:
    """Ingest rows into a table, with checks."""

    def load(
        *rows: Row, table: str = "nyc.trips", checks: str | Sequence[str] = "not_null(id)", name: str | None = None
    ) -> Run:
        run_id = new_run_id()
        texts = [checks] if isinstance(checks, str) else checks
        return ingest(
            house.context,
            IngestRequest(
                run_id=run_id,
                table=TableIdentifier.parse(table),
                batch=house.batch(name or run_id, rows),
                checks=tuple(check for text in texts if text for check in parse_checks(text)),
                branch=f"wap/{table}_{run_id}",
            ),
        )

    return load
