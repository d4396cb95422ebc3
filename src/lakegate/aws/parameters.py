"""The template's parameters as users give them: by an option each, which is named after the parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from lakegate.errors import InputError


class Parameter(NamedTuple):
    """A parameter of the template. Its default is the template's.

    Attributes:
        name: As the template calls it.
        metavar: What its value is, in help.
        help: What it means.
        choices: The values that are allowed, when they are few.
    """

    name: str
    metavar: str
    help: str
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option of the command line.

        Example:
            >>> Parameter("CatalogUri", "URI", "").option
            '--catalog-uri'
        """
        return "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower()


FILLED_IN = ("CodeBucket", "CodeKey")
"""Parameters that a deployment fills in itself."""

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("BucketName", "NAME", "Bucket for landing and warehouse. Default: made of name, account and region."),
    Parameter("LandingPrefix", "PREFIX", "Keys below it are ingested. Default: landing/"),
    Parameter(
        "Routes", "JSON", "Which table each file goes to: a list of routes. Default: PREFIX/NAMESPACE/TABLE/FILE."
    ),
    Parameter("NoncurrentDays", "DAYS", "How long overwritten and deleted objects can be brought back. Default: 30"),
    Parameter("PythonVersion", "X.Y", "Python of the function. Default: 3.12", ("3.12", "3.13", "3.14")),
    Parameter("Architecture", "NAME", "Processor of the function. Default: x86_64", ("x86_64", "arm64")),
    Parameter("FunctionMemory", "MB", "Memory of the function. Default: 2048"),
    Parameter("FunctionTimeout", "S", "Seconds of one call. Default: 300", ("60", "120", "300", "600", "900")),
    Parameter("BatchSize", "N", "Notifications in one call at most. Default: 200"),
    Parameter("BatchWindow", "S", "Seconds to wait for more of them. Default: 10"),
    Parameter(
        "MaximumConcurrency", "N", "Calls at the same time at most. Default: 5", ("2", "5", "10", "20", "50", "100")
    ),
    Parameter("ReservedConcurrency", "N", "Concurrency taken from the account's. Default: none"),
    Parameter("MaxReceiveCount", "N", "Tries before a notification goes to the dead letters. Default: 5"),
    Parameter("LogDays", "DAYS", "How long logs are kept. Default: 30"),
    Parameter("AlarmEmail", "ADDRESS", "Who is told when something is in the dead letters."),
    Parameter("SlackSecretArn", "ARN", "Secret with a Slack webhook, to be told of rejected batches."),
    Parameter("SecretArns", "ARNS", "More secrets, which the lakegate.toml of --settings names; with commas between."),
    Parameter("CatalogUri", "URI", "Nessie that you bring. Default: one is made."),
    Parameter("CatalogTokenArn", "ARN", "Secret with its bearer token."),
    Parameter(
        "CatalogStore", "NAME", "Where the made one keeps its commits. Default: postgres", ("postgres", "dynamodb")
    ),
    Parameter("CatalogImage", "IMAGE", "Image of the made one."),
    Parameter("CatalogClients", "CIDR", "Addresses from which a Spark that you bring reaches the made one."),
    Parameter("SparkUrl", "URL", "Spark Connect that you bring: sc://host:15002. Default: a small one is made."),
    Parameter("SparkTokenArn", "ARN", "Secret with its bearer token."),
    Parameter("SparkSize", "NAME", "Size of the made one. Default: small", ("small", "medium", "large")),
    Parameter("SparkImage", "IMAGE", "Image of the made one."),
    Parameter("JournalUrl", "URL", "Postgres that you bring: postgresql://user@host:5432/name. Default: one is made."),
    Parameter("JournalPasswordArn", "ARN", "Secret with its password."),
    Parameter("DatabaseClass", "CLASS", "Instance class of the made one. Default: db.t4g.micro"),
    Parameter("DatabaseGb", "GB", "Disk of the made one. Default: 20"),
    Parameter("VpcId", "ID", "Network that you bring. Default: one is made when something has to be in one."),
    Parameter("SubnetIds", "IDS", "Two or more of its private subnets, with commas between."),
    Parameter("NetworkCidr", "CIDR", "Addresses of the made one. Default: 10.77.0.0/24"),
)


NAMES = frozenset({*FILLED_IN, *(parameter.name for parameter in PARAMETERS)})
"""All of them."""


def validated(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that were given, or raise what is wrong with them together.

    Raises:
        InputError: When one is unknown, or needs another one.

    Example:
        >>> validated({"VpcId": "vpc-0123456789abcdef0"})
        Traceback (most recent call last):
        lakegate.errors.InputError: --vpc-id and --subnet-ids go together.
    """
    known = {parameter.name: parameter for parameter in PARAMETERS}
    for name in given:
        if name not in known:
            raise InputError(f"The template has no parameter '{name}'.", parameter=name)
    if ("VpcId" in given) != ("SubnetIds" in given):
        raise InputError("--vpc-id and --subnet-ids go together.", hint="Give both, or none to have a network made.")
    return dict(given)
