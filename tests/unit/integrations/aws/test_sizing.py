"""Invalid combinations of parameters are refused with a reason before anything is created."""

from __future__ import annotations

import pytest

from lakegate.errors import InputError
from lakegate.integrations.aws.parameters import defaults
from lakegate.integrations.aws.sizing import max_connections, require_fitting

_BROUGHT = {"SparkUrl": "sc://spark:15002", "CatalogUri": "https://nessie/api/v2", "JournalUrl": "postgresql://l@db/l"}


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        (
            {"ReservedConcurrency": "1"},
            ["--reserved-concurrency 1 is below --maximum-concurrency 2: Lambda would throttle the queue's calls"],
        ),
        (
            {"MaximumConcurrency": "20", "SparkSize": "large"},
            ["needs up to 108 connections to the database (4 per call, 20 for Nessie, 8 in reserve)", "has about 78"],
        ),
        ({"MaximumConcurrency": "10"}, ["is too much for --spark-size small, which runs 2 ingests at a time"]),
        (
            {"MaximumConcurrency": "100", "ReservedConcurrency": "50"},
            ["--reserved-concurrency 50", "up to 428 connections", "--spark-size small"],
        ),
        (
            {"Schedule": "on-demand", "SparkUrl": "sc://s:1"},
            ["it can't be combined with --spark-url"],
        ),
        (
            {"Egress": "endpoints", "VpcId": "vpc-1", "SlackSecretArn": "arn", "JournalUrl": "postgresql://j@d/j"},
            ["can't be combined with --vpc-id", "can't be combined with --journal-url, --slack-secret-arn"],
        ),
        ({"DatabaseGb": "100"}, ["--database-max-gb 100 is below 1.1 times --database-gb 100", "at least 111"]),
    ],
)
def test_invalid_combinations_are_refused_with_a_reason(given: dict[str, str], reasons: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        require_fitting({**defaults(), **given})

    for reason in reasons:
        assert reason in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"ReservedConcurrency": "5"},
        {"MaximumConcurrency": "10", "SparkSize": "large", "DatabaseClass": "db.t4g.small"},
        {"MaximumConcurrency": "10", "SparkSize": "large", "DatabaseClass": "db.of.another.time"},
        {"MaximumConcurrency": "100", **_BROUGHT},
    ],
)
def test_valid_combinations_are_accepted(given: dict[str, str]) -> None:
    require_fitting({**defaults(), **given})


@pytest.mark.parametrize(
    ("database_class", "expected"),
    [
        ("db.t4g.micro", 78),
        ("db.t4g.small", 157),
        ("db.t4g.medium", 315),
        ("db.t4g.large", 630),
        ("db.m7g.large", 630),
        ("db.r7g.large", 1261),
        ("db.r7g.24xlarge", 5000),
        ("db.serverless", None),
        ("db.x2g.large", None),
    ],
)
def test_connections_by_class(database_class: str, expected: int | None) -> None:
    assert max_connections(database_class) == expected
