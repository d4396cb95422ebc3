"""The function behind AWS's own runtime client, with real Spark, Nessie, S3 and Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakegate.lake import Lake
from support import warm
from support.lambda_runtime import FunctionEndedError
from support.lambda_support import (
    Queue,
    World,
    bridge_event,
    open_lakehouse,
    parquet,
    sns_envelope,
    sns_event,
    without_spark,
)

if TYPE_CHECKING:
    from support.postgres import PostgresServer
    from support.s3_server import S3Server

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module")
def lakehouse(
    s3_server: S3Server, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lake, Mapping[str, str]]]:
    """The lake, and the variables of a function that works in it."""
    with open_lakehouse(tmp_path_factory.mktemp("lambda-home"), s3_server, postgres) as opened:
        yield opened


@pytest.fixture
def world(
    lakehouse: tuple[Lake, Mapping[str, str]], s3_server: S3Server, tmp_path: Path, namespace: str
) -> Iterator[World]:
    lake, variables = lakehouse
    made = World(lake, s3_server.new_bucket(), variables, tmp_path, namespace, python=warm.python())
    (tmp_path / "lakegate.toml").write_text(f'[tables."{made.table}"]\nchecks = ["not_null(passengers)"]\n')
    yield made
    made.close()


def test_a_file_is_published_once_whichever_way_and_however_often_it_is_told_of(world: World) -> None:
    function = world.function()
    event = world.put("a b+c%20é.parquet", parquet(10))
    key = world.key("a b+c%20é.parquet")
    assert function.invoke(event) == {}
    queue = Queue()
    queue.send(event, event, sns_envelope(event), bridge_event(world.bucket.name, key))
    assert queue.deliver(function) == []
    for again in (event, sns_event(event), bridge_event(world.bucket.name, key)):
        assert function.invoke(again) == {}
    assert world.ids() == list(range(10))
    assert world.statuses() == ["published"]


def test_clean_with_nulls_and_truncated_in_one_batch(world: World) -> None:
    function = world.function()
    queue = Queue(max_receives=4)
    _, _, truncated, _, odd = queue.send(
        world.put("clean.parquet", parquet(10)),
        world.put("nulls.parquet", parquet(10, nulls=3, start=10)),
        world.put("truncated.parquet", parquet(10, start=20)[:-30]),
        world.put("nowhere.csv", b"id\n1\n"),
        "not JSON",
    )
    assert sorted(queue.deliver(function)) == sorted([truncated, odd])
    assert world.ids() == list(range(10))
    rejected = world.lake.runs(table=world.table, status="rejected")
    assert [len(run.request.batch.files) for run in rejected if run.request and run.branch_kept] == [1]
    while queue.waiting:
        queue.deliver(function)
    assert set(queue.dead) == {truncated, odd}
    uri = f"{world.bucket.uri}/{world.key('truncated.parquet')}"
    landing = world.lake.files.checkpoints(world.table, [uri])[uri]
    assert (landing.outcome, landing.tries) == ("failed", 3)
    assert "cut off" in str(landing.reason)
    # mended, and sent again by hand: what was given up before that does not count
    world.put("truncated.parquet", parquet(10, start=20))
    queue.send(queue.dead[truncated])
    assert queue.deliver(function) == []
    assert world.ids() == [*range(10), *range(20, 30)]
    outcomes = {line["file"].rpartition("/")[2]: line["outcome"] for line in function.lines() if "outcome" in line}
    assert outcomes["nowhere.csv"] == "left out"
    assert all(line["aws_request_id"] for line in function.lines())
    for secret in ("AWS_SECRET_ACCESS_KEY", "SPARK_TOKEN", "JOURNAL_PASSWORD"):
        assert world.variables[secret] not in function.log()


def test_what_the_deadline_leaves_is_gone_on_with(world: World) -> None:
    function = world.function(LAKEGATE_FUNCTION_MARGIN_S="1")
    queue = Queue(max_receives=100)
    queue.send(world.put("large.parquet", parquet(300_000)))
    left_s = 0.05
    while queue.deliver(function, timeout_s=1 + left_s):
        left_s *= 1.3
    assert world.lake.table(world.table).rows == 300_000
    (run,) = world.lake.runs(table=world.table)
    assert run.status == "published"
    parked = [line for line in function.lines() if line["run_id"] == run.run_id and line.get("code") == "deadline"]
    assert parked, "it was never in the middle of something"


def test_functions_at_once_and_killed_publish_each_file_once(world: World) -> None:
    names = [f"{number}.parquet" for number in range(6)]
    queue = Queue(max_receives=100)
    ids = queue.send(*world.put_many(names))
    shares = (ids, ids[::-1], ids[1:4], ids[:2])
    faults = ("after-claim:kill", "after-stage:kill", "before-commit:kill", "")
    functions = [world.function(LAKEGATE_FAULT=fault) for fault in faults]
    deliveries = [queue.receive(share) for share in shares]
    calls = [function.start(delivery) for function, delivery in zip(functions, deliveries, strict=True)]
    ended = []
    for function, call, delivery in zip(functions, calls, deliveries, strict=True):
        try:
            answer = function.wait(call)
        except FunctionEndedError:
            ended.append(function)
        else:
            assert answer.error is None
            queue.settle(delivery, answer.value)
    while queue.waiting:
        queue.deliver(functions[-1])
    assert ended
    assert world.ids() == list(range(60))


def test_it_needs_no_jvm_and_no_py4j(world: World) -> None:
    function = world.function(PYTHONPATH=str(without_spark(world.folder / "thin")))
    assert function.invoke(world.put("a.parquet", parquet(10))) == {}
    assert world.ids() == list(range(10))
    assert "pyspark is the client alone" in function.log()
