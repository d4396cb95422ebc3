"""The costs of an idle deployment."""

from __future__ import annotations

import pytest

from lakegate.integrations.aws.parameters import defaults, template
from lakegate.integrations.aws.sizing import idle_costs


def test_by_default() -> None:
    found = idle_costs(defaults())

    # As AWS's own calculator has them: 730 hours, us-east-1, on demand.
    assert {one.part: one.usd for one in found.parts if one.part != "secrets, alarms, names"} == {
        "NAT gateway": 36.5,
        "Spark": 44.96,
        "Nessie": 21.26,
        "database": 13.98,
    }
    assert 116 < found.total_usd < 125
    assert found.total_usd == pytest.approx(sum(one.usd or 0 for one in found.parts))
    assert [(one.option, one.usd) for one in found.smaller] == [
        ("--schedule", 44.96),
        ("--egress endpoints", 14.6),
        ("--catalog-store dynamodb --journal-url URL", 13.98),
    ]


def test_the_smallest_that_makes_all() -> None:
    found = idle_costs({**defaults(), "Schedule": "on-demand", "Egress": "endpoints"})

    assert {one.part: one.usd for one in found.parts}["endpoints"] == 18.25  # Spark is off, and its address with it
    assert {one.part: one.usd for one in found.parts}["Spark"] == 0
    assert found.total_usd < 60
    assert [one.option for one in found.smaller] == ["--catalog-store dynamodb --journal-url URL"]


def test_your_own_servers_cost_nothing() -> None:
    brought = {"CatalogUri": "https://n/api/v2", "SparkUrl": "sc://s:1", "JournalUrl": "postgresql://j@d/j"}

    [small] = idle_costs({**defaults(), **brought}).parts

    assert small.usd is not None
    assert small.usd < 2


def test_unknown_prices_are_reported() -> None:
    found = idle_costs({**defaults(), "DatabaseClass": "db.m7g.large"})

    assert found.unknown == ("database",)


def test_servers_are_as_large_as_they_are_counted() -> None:
    resources, sizes = template()["Resources"], template()["Mappings"]["Spark"]
    nessie = resources["CatalogTask"]["Properties"]

    assert (nessie["Cpu"], nessie["Memory"]) == ("512", "2048")
    assert {name: (one["Cpu"], one["Memory"]) for name, one in sizes.items()} == {
        "small": ("1024", "4096"),
        "medium": ("2048", "8192"),
        "large": ("4096", "16384"),
    }
    assert resources["SparkTask"]["Properties"]["EphemeralStorage"]["SizeInGiB"] == 50
