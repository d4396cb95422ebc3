"""Deploying the function: the same template and the same code as ``lakegate aws deploy``, with everything brought."""

from __future__ import annotations

import hashlib
import platform
import sys
from typing import Any, get_args

from lakegate.aws.clients import Clients, open_clients
from lakegate.aws.deployment import Deployment
from lakegate.aws.package import Architecture, FunctionPackage, build_package
from lakegate.cli.demo_aws.cloud import Cloud, Deployed
from lakegate.cli.demo_aws.home import BUCKET, DemoHome
from lakegate.errors import ConfigurationError
from lakegate.local import StackState
from lakegate.protocols import Narrator

_NAME = "demo"
_PARAMETERS = {
    "BucketName": BUCKET,
    "FunctionTimeout": "300",
    "BatchWindow": "1",
    "BatchSize": "10",
    "MaximumConcurrency": "2",
    "MaxReceiveCount": "3",
}
_SPELLINGS = {"amd64": "x86_64", "aarch64": "arm64"}
_POLL_S = 0.3


def deploy(home: DemoHome, stack: StackState, webhook: str, narrator: Narrator) -> Cloud:
    """Build the function for this machine, deploy it, and return what it is deployed to.

    Args:
        home: The demo's project.
        stack: The local stack, which the function is to use.
        webhook: Address that the function is to send alerts to.
        narrator: Told of progress.

    Raises:
        ConfigurationError: When a package is missing, or there is none for this machine.
        RetryableError: When the package index does not answer.
        DeploymentError: When something cannot be made.
    """
    with narrator.step("Building the function"):
        package = build_package(home.function, _wanted(home))
    clients = open_clients()
    given = {
        **_PARAMETERS,
        "CatalogUri": stack.nessie_uri,
        "SparkUrl": f"sc://localhost:{stack.spark.port}",
        "SparkTokenArn": _secret(clients, "spark", stack.spark.token or ""),
        "SlackSecretArn": _secret(clients, "slack", webhook),
        "JournalUrl": home.journal_url,
    }
    outputs = Deployment(_NAME, clients, narrator, poll_s=_POLL_S).deploy(given, package).outputs
    deployed = Deployed(
        bucket=outputs["Bucket"],
        dead_letters=outputs["DeadLettersUrl"],
        log_group=outputs["LogGroup"],
    )
    return Cloud(deployed, clients)


def is_deployed(narrator: Narrator) -> bool:
    """Tell whether the function is deployed, in whatever state."""
    return Deployment(_NAME, open_clients(), narrator).survey().state is not None


def _wanted(home: DemoHome) -> FunctionPackage:
    machine = _SPELLINGS.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform != "linux" or machine not in get_args(Architecture):
        raise ConfigurationError(
            f"The function is built for Linux on {' or '.join(get_args(Architecture))}, and this machine is "
            f"{platform.system()} on {platform.machine()}.",
            hint="Run it on a Linux machine, or deploy to AWS: lakegate aws deploy --help",
        )
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"  # MiniStack runs functions on its own
    return FunctionPackage(python=python, architecture=machine, settings=home.function_settings)  # type: ignore[arg-type]  # looked at above


def _secret(clients: Clients, kind: str, value: str) -> str:
    """Return the ARN of a secret. Another value is another secret, so that functions that run do not keep the old."""
    manager: Any = clients.session.client("secretsmanager")
    name = f"lakegate-{_NAME}/{kind}-{hashlib.sha256(value.encode()).hexdigest()[:16]}"
    try:
        return str(manager.create_secret(Name=name, SecretString=value)["ARN"])
    except manager.exceptions.ResourceExistsException:
        return str(manager.describe_secret(SecretId=name)["ARN"])
