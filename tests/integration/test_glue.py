"""Tables on a real S3 in a real Glue, as far as MiniStack is: PyIceberg finds and reads there what was published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.memory import InMemoryCatalog

from lakegate.config import GlueDownstream, Settings
from lakegate.downstream import DownstreamContext
from lakegate.downstream.glue import GlueTarget, make
from support.downstream_contract import DownstreamContract, changed, event
from support.ministack import MiniStack, ministack

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ministack")]


@pytest.fixture(scope="module")
def server() -> Iterator[MiniStack]:
    with ministack() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(server: MiniStack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def target(**settings: str) -> GlueTarget:
    context = DownstreamContext(Path(), "s3://lake", Settings())
    return make("glue", GlueDownstream.model_validate({"type": "glue", **settings}), context)


class TestGlueOnMiniStack(DownstreamContract):
    @pytest.fixture
    def target(self, request: pytest.FixtureRequest) -> GlueTarget:
        return target(database=f"db_{abs(hash(request.node.name))}")

    @pytest.fixture
    def away(self) -> GlueTarget:
        return target(endpoint="http://127.0.0.1:9")

    @pytest.fixture
    def refusing(self) -> GlueTarget:
        made = target(database="refusing")
        made.deliver(event(changed("other.trips", number=0)), None)
        return made


def test_pyiceberg_reads_through_glue_what_was_published(server: MiniStack) -> None:
    import boto3

    env = server.environment
    boto3.client("s3").create_bucket(Bucket="lake")
    s3 = {
        "s3.endpoint": env["AWS_ENDPOINT_URL"],
        "s3.access-key-id": env["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": env["AWS_SECRET_ACCESS_KEY"],
        "s3.region": env["AWS_REGION"],
    }
    lake = InMemoryCatalog("lake", warehouse="s3://lake/w", **s3)
    lake.create_namespace("nyc")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "zone": ["a", None, "c"]})
    table = lake.create_table("nyc.trips", rows.schema)
    readers = GlueCatalog("glue", **s3, **{"glue.endpoint": env["AWS_ENDPOINT_URL"], "glue.region": env["AWS_REGION"]})
    told, before = target(), None
    for number in (1, 2):
        table.append(rows)
        here = table.metadata_location
        told.deliver(event(changed(after=here, before=before, location=table.location()), run_id=f"r{number}"), None)
        found = readers.load_table("nyc.trips")
        assert found.metadata_location == here
        assert found.scan().to_arrow().num_rows == 3 * number
        before = here
