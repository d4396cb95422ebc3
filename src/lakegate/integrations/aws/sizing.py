"""Check that parameters fit together (concurrent calls, connections, Spark's size, disks), and estimate costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lakegate.errors import InputError
from lakegate.integrations.aws.parameters import Cost, Costs, Saving, template

CONNECTIONS_OF_A_CALL = 4
"""The template's value of ``journal.max_connections`` for the function."""
CONNECTIONS_OF_NESSIE = 20
"""The template's size of Nessie's connection pool."""
_CONNECTIONS_KEPT_FREE = 8
"""For Postgres's superusers, RDS itself, and a person with psql."""
_BYTES_A_CONNECTION = 9_531_392
"""RDS: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/CHAP_Limits.html, max_connections."""
_MEMORY_LEFT_BY_RDS = 0.7
"""``DBInstanceClassMemory`` excludes RDS's own memory, whose size is undocumented."""
_MOST_CONNECTIONS = 5000
_GIB = 1 << 30
# https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/Concepts.DBInstanceClass.Summary.html
_SMALL_GIB = {"micro": 1, "small": 2, "medium": 4}
_LARGE_GIB = {"m": 8, "r": 16}
_CLASS = re.compile(r"db\.([a-z])\d[a-z]*\.(?:(micro|small|medium|large)|(\d*)xlarge)")
CALLS_OF_SPARK = {"small": 2, "medium": 5, "large": 10}
"""Maximum number of concurrent runs by Spark's size: about two per CPU. More would exceed the function's timeout."""
_OUTSIDE_AWS = {
    "CatalogUri": "--catalog-uri",
    "SparkUrl": "--spark-url",
    "JournalUrl": "--journal-url",
    "SlackSecretArn": "--slack-secret-arn",
}
_DISK_GROWS_BY = 1.1
"""RDS's minimum for the maximum: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_PIOPS.Autoscaling.html."""


def require_fitting(values: Mapping[str, str]) -> None:
    """Refuse parameters that don't fit together, reporting all problems at once.

    Raises:
        InputError: If calls would be throttled, connections or Spark would run out, or the disk couldn't grow.
    """
    problems = [*_concurrency(values), *_connections(values), *_spark(values), *_disk(values), *_layout(values)]
    if problems:
        raise InputError(" ".join(problems), hint="lakegate aws deploy --help explains each option.")


def max_connections(database_class: str) -> int | None:
    """Return RDS's default connection limit for an instance class; ``None`` for an unknown class.

    Example:
        >>> max_connections("db.t4g.micro"), max_connections("db.m7g.2xlarge"), max_connections("db.x9.huge")
        (78, 2523, None)
    """
    memory = _memory_gib(database_class)
    if memory is None:
        return None
    return min(int(memory * _GIB * _MEMORY_LEFT_BY_RDS / _BYTES_A_CONNECTION), _MOST_CONNECTIONS)


def _memory_gib(database_class: str) -> int | None:
    found = _CLASS.fullmatch(database_class)
    if found is None:
        return None
    family, size, times = found.groups()
    if size in _SMALL_GIB:
        return _SMALL_GIB[size]
    of_large = _LARGE_GIB.get("m" if family == "t" else family)
    return of_large and of_large * (1 if size else 2 * int(times or 1))


def _concurrency(values: Mapping[str, str]) -> Iterator[str]:
    reserved, most = int(values["ReservedConcurrency"]), int(values["MaximumConcurrency"])
    if 0 < reserved < most:
        yield (
            f"--reserved-concurrency {reserved} is below --maximum-concurrency {most}: Lambda would throttle "
            "the queue's calls, and each throttled call brings healthy messages closer to the dead-letter queue."
        )


def _connections(values: Mapping[str, str]) -> Iterator[str]:
    if values["JournalUrl"] and (values["CatalogUri"] or values["CatalogStore"] != "postgres"):
        return  # no database is created
    allowed = max_connections(values["DatabaseClass"])
    if allowed is None:
        return
    calls = 0 if values["JournalUrl"] else int(values["MaximumConcurrency"])
    nessie = 0 if values["CatalogUri"] or values["CatalogStore"] != "postgres" else CONNECTIONS_OF_NESSIE
    needed = calls * CONNECTIONS_OF_A_CALL + nessie + _CONNECTIONS_KEPT_FREE
    if needed > allowed:
        yield (
            f"--maximum-concurrency {values['MaximumConcurrency']} needs up to {needed} connections to the database "
            f"({CONNECTIONS_OF_A_CALL} per call, {nessie} for Nessie, {_CONNECTIONS_KEPT_FREE} in reserve), and "
            f"{values['DatabaseClass']} has about {allowed}: lower it, or choose a larger --database-class."
        )


def _spark(values: Mapping[str, str]) -> Iterator[str]:
    size, calls = values["SparkSize"], int(values["MaximumConcurrency"])
    if not values["SparkUrl"] and calls > CALLS_OF_SPARK[size]:
        yield (
            f"--maximum-concurrency {calls} is too much for --spark-size {size}, which runs {CALLS_OF_SPARK[size]} "
            "ingests at a time; more would exceed the function's timeout: lower it, or choose a larger Spark."
        )


def _disk(values: Mapping[str, str]) -> Iterator[str]:
    disk, most = int(values["DatabaseGb"]), int(values["DatabaseMaxGb"])
    if most < disk * _DISK_GROWS_BY:
        yield (
            f"--database-max-gb {most} is below 1.1 times --database-gb {disk}, the minimum for RDS: pass "
            f"at least {int(disk * _DISK_GROWS_BY) + 1}."
        )


def _layout(values: Mapping[str, str]) -> Iterator[str]:
    if values["Schedule"] == "on-demand" and values["SparkUrl"]:
        yield "--schedule only applies to a Spark that lakegate creates, so it can't be combined with --spark-url."
    if values["Egress"] == "endpoints":
        if values["VpcId"]:
            yield "--egress endpoints needs a network that lakegate creates, so it can't be combined with --vpc-id."
        outside = [option for name, option in _OUTSIDE_AWS.items() if values[name]]
        if outside:
            options = ", ".join(outside)
            yield f"--egress endpoints reaches AWS only, so it can't be combined with {options}: pass --egress nat."


PRICES_OF = "2026-11"
SOURCE = "https://aws.amazon.com/pricing, us-east-1, on demand, without free tiers and taxes"
_HOURS = 730
# In USD; per hour, unless the name has another unit.
_NAT_GATEWAY = 0.045
_PUBLIC_ADDRESS = 0.005
_INTERFACE_ENDPOINT = 0.01
_FARGATE_CPU = 0.04048
_FARGATE_GB = 0.004445
_FARGATE_DISK_GB = 0.000111
_DATABASE_DISK_GB_MONTH = 0.115
_SECRET_MONTH = 0.40
_ALARM_MONTH = 0.10
_PRIVATE_ZONE_MONTH = 0.50
_DATABASES = {"db.t4g.micro": 0.016, "db.t4g.small": 0.032, "db.t4g.medium": 0.065, "db.t4g.large": 0.129}
# The template's sizes: CPUs, GB of memory, GB of disk beyond the free 20.
_NESSIE = (0.5, 2, 0)
_SPARK = {"small": (1, 4, 30), "medium": (2, 8, 30), "large": (4, 16, 30)}
_ENDPOINTS = 2  # for secrets and for the queue


def idle_costs(values: Mapping[str, str]) -> Costs:
    """Return the monthly cost of an idle deployment, part by part.

    Example:
        >>> from lakegate.integrations.aws.parameters import defaults
        >>> [part.part for part in idle_costs(defaults()).parts]
        ['NAT gateway', 'Spark', 'Nessie', 'database', 'secrets, alarms, names']
    """
    parts = tuple(_parts(values))
    return Costs(
        parts=parts,
        total_usd=_total(parts),
        unknown=tuple(part.part for part in parts if part.usd is None),
        smaller=tuple(_smaller(values, parts)),
        prices_of=PRICES_OF,
        source=SOURCE,
    )


def _parts(values: Mapping[str, str]) -> Iterator[Cost]:
    nessie, spark = not values["CatalogUri"], not values["SparkUrl"]
    on_postgres = nessie and values["CatalogStore"] == "postgres"
    database = on_postgres or not values["JournalUrl"]
    sleeps = spark and values["Schedule"] == "on-demand"
    if (nessie or spark or database) and not values["VpcId"]:
        if values["Egress"] == "nat":
            yield _cost("NAT gateway", _HOURS * (_NAT_GATEWAY + _PUBLIC_ADDRESS), "one, with its address")
        else:
            awake = nessie + (spark and not sleeps)
            hourly = _ENDPOINTS * _INTERFACE_ENDPOINT + awake * _PUBLIC_ADDRESS
            yield _cost("endpoints", _HOURS * hourly, f"{_ENDPOINTS}, and {awake} public addresses of servers")
    if spark:
        size = values["SparkSize"]
        note = "stopped; as long as it runs, " if sleeps else ""
        month = _fargate(*_SPARK[size])
        yield _cost("Spark", 0.0 if sleeps else month, f"{note}{month:.0f} a month, {size}" if sleeps else size)
    if nessie:
        yield _cost("Nessie", _fargate(*_NESSIE), "commits in " + ("Postgres" if on_postgres else "DynamoDB"))
    if database:
        price = _DATABASES.get(values["DatabaseClass"])
        disk = int(values["DatabaseGb"]) * _DATABASE_DISK_GB_MONTH
        usd = None if price is None else price * _HOURS + disk
        uses = ["journal"] * (not values["JournalUrl"]) + ["Nessie"] * on_postgres
        yield _cost("database", usd, f"{values['DatabaseClass']}, {values['DatabaseGb']} GB, of {' and '.join(uses)}")
    kinds = [one["Type"] for one in template()["Resources"].values()]
    secrets = kinds.count("AWS::SecretsManager::Secret") if nessie or spark or database else 0
    small = secrets * _SECRET_MONTH + kinds.count("AWS::CloudWatch::Alarm") * _ALARM_MONTH
    yield _cost("secrets, alarms, names", small + (_PRIVATE_ZONE_MONTH if nessie or spark else 0), "at most")


def _smaller(values: Mapping[str, str], parts: tuple[Cost, ...]) -> Iterator[Saving]:
    made = {part.part for part in parts}
    if "Spark" in made and values["Schedule"] != "on-demand":
        what = "stop Spark while no files arrive; the first file then waits a few minutes for it"
        yield _saving(values, parts, "--schedule", {"Schedule": "on-demand"}, what)
    if "NAT gateway" in made:
        what = "no NAT gateway: servers with public addresses but closed ports, endpoints for the function; no Slack"
        yield _saving(values, parts, "--egress endpoints", {"Egress": "endpoints"}, what)
    if "database" in made:
        changes = {"CatalogStore": "dynamodb", "JournalUrl": values["JournalUrl"] or "your own"}
        on_postgres = not values["CatalogUri"] and values["CatalogStore"] == "postgres"
        options = ["--catalog-store dynamodb"] * on_postgres + ["--journal-url URL"] * (not values["JournalUrl"])
        what = "no database: your own Postgres for the journal" + (", Nessie on DynamoDB" if on_postgres else "")
        yield _saving(values, parts, " ".join(options), changes, what)


def _saving(
    values: Mapping[str, str], parts: tuple[Cost, ...], option: str, changes: Mapping[str, str], what: str
) -> Saving:
    then = _total(tuple(_parts({**values, **changes})))
    return Saving(option=option, what=what, usd=round(_total(parts) - then, 2))


def _fargate(cpu: float, gb: float, disk_gb: float) -> float:
    return _HOURS * (cpu * _FARGATE_CPU + gb * _FARGATE_GB + disk_gb * _FARGATE_DISK_GB)


def _cost(part: str, usd: float | None, note: str) -> Cost:
    return Cost(part=part, usd=None if usd is None else round(usd, 2), note=note)


def _total(parts: tuple[Cost, ...]) -> float:
    return round(sum(part.usd or 0.0 for part in parts), 2)
