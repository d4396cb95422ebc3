"""Requests of writers with anything in them: each is answered, no table is damaged, and main stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from support.gate_requests import changed, places, requests
from support.gate_world import Writer, memory_world, pyiceberg_writer, served
from support.rest_world import valid

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["", "main", "nyc", "mine", "append", "-1", "..", "\x00", "\ud7ff", "s3://x", "variant"]),
        st.sampled_from([-1, 0, 1, 2, 3, 2**31, 2**63]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Writer, Any]:
    world = memory_world(tmp_path_factory.mktemp("lake"))
    opening = world.open("wap/day")
    with served(world.app()) as url, pyiceberg_writer(url, opening) as catalog:
        catalog.create_namespace("nyc")
        rows = pa.table({"id": [1, 2, 3]})
        catalog.create_table("nyc.mine", rows.schema).append(rows)
    return world.writer(opening), world.catalog


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_anything_is_answered_and_nothing_is_damaged(scene: tuple[Writer, Any], data: st.DataObject) -> None:
    writer, catalog = scene
    main = catalog.get_ref("main")
    method, path, body = data.draw(st.sampled_from(requests(writer.load("mine")["metadata"])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(list(places(body))))
        body = changed(body, at, data.draw(JSON), drops=bool(at) and data.draw(st.booleans()))
    response = writer.send(method, path, json.loads(json.dumps(body)))
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        valid("IcebergErrorResponse", response.json())
    assert catalog.get_ref("main") == main
    reader = IcebergTableReader(TableFiles())
    for pointer in catalog.list_tables(catalog.get_ref("wap/day")):
        reader.require_loadable(pointer, "wap/day")
        reader.metadata(pointer)
    assert Path(writer.load("mine")["metadata-location"].removeprefix("file://")).is_file()
