"""The connections to AWS, made by its own library and by its own rules for credentials and region."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakegate.aws.errors import translated
from lakegate.errors import ConfigurationError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_rds import RDSClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

_ATTEMPTS = 6
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60


@dataclass
class Clients:
    """The services that a deployment asks; each client is made when it is first used.

    Args:
        session: A ``boto3.Session``.
    """

    session: Any

    @cached_property
    def account(self) -> str:
        """Number of the account that the credentials belong to.

        Raises:
            LakegateError: As :func:`lakegate.aws.errors.translated` does.
        """
        with translated("asking for the account"):
            return str(self._client("sts").get_caller_identity()["Account"])

    @property
    def region(self) -> str:
        """The region that everything is in."""
        return str(self.cloudformation.meta.region_name)

    @cached_property
    def cloudformation(self) -> CloudFormationClient:
        """Stacks."""
        return self._client("cloudformation")  # type: ignore[no-any-return]  # the session is untyped

    @cached_property
    def s3(self) -> S3Client:
        """Buckets."""
        return self._client("s3")  # type: ignore[no-any-return]  # likewise

    @cached_property
    def sqs(self) -> SQSClient:
        """Queues."""
        return self._client("sqs")  # type: ignore[no-any-return]  # likewise

    @cached_property
    def functions(self) -> LambdaClient:
        """Functions."""
        return self._client("lambda")  # type: ignore[no-any-return]  # likewise

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        """Logs."""
        return self._client("logs")  # type: ignore[no-any-return]  # likewise

    @cached_property
    def rds(self) -> RDSClient:
        """Databases."""
        return self._client("rds")  # type: ignore[no-any-return]  # likewise

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        """Tables of DynamoDB."""
        return self._client("dynamodb")  # type: ignore[no-any-return]  # likewise

    def _client(self, service: str) -> Any:
        from botocore.config import Config  # noqa: PLC0415 - an extra, and slow to import

        config = Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
        )
        with translated(f"connecting to {service}"):
            return self.session.client(service, config=config)


def open_clients(region: str | None = None, profile: str | None = None) -> Clients:
    """Return the connections for these credentials; asks nothing yet.

    Args:
        region: Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's.
        profile: Of AWS's own configuration; default ``AWS_PROFILE``.

    Raises:
        ConfigurationError: When the library is not installed, there is no such profile, or no region.
    """
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "Deploying to AWS needs the package boto3, which is not installed.", hint="pip install 'lakegate[aws]'"
        ) from error
    try:
        session = boto3.Session(region_name=region or os.environ.get("AWS_REGION"), profile_name=profile)
    except BotoCoreError as error:
        raise ConfigurationError(f"{str(error).rstrip('.')}.", hint="See `aws configure list-profiles`.") from error
    if session.region_name is None:
        raise ConfigurationError(
            "No AWS region is set.", hint="Give one: --region eu-central-1, AWS_REGION, or the profile's."
        )
    return Clients(session)
