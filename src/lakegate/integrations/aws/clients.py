"""Connections to AWS with boto3, which finds credentials and region."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError, missing_package
from lakegate.storage.s3 import expect_owner

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


_BOTO3_NAMES = {"functions": "lambda", "tagging": "resourcegroupstaggingapi"}
"""boto3's names of services that have another name here."""


class Clients:
    """The AWS services that a deployment uses, in a ``boto3.Session``. Each client is created on first use."""

    cloudformation: CloudFormationClient
    codebuild: Any
    dynamodb: DynamoDBClient
    ecr: Any
    ecs: Any
    functions: LambdaClient
    iam: Any
    logs: CloudWatchLogsClient
    rds: RDSClient
    s3: S3Client
    sqs: SQSClient
    tagging: Any

    def __init__(self, session: Any) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        if name not in Clients.__annotations__:
            raise AttributeError(name)
        client = self._client(_BOTO3_NAMES.get(name, name))
        if name == "s3":  # refuse buckets of other accounts
            expect_owner(client, self.account)
        setattr(self, name, client)
        return client

    @cached_property
    def account(self) -> str:
        """Number of the account that the credentials belong to."""
        with translate_errors("getting the account"):
            return str(self._client("sts").get_caller_identity()["Account"])

    @property
    def region(self) -> str:
        """The region that everything is in."""
        return str(self.cloudformation.meta.region_name)

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
        )
        with translate_errors(f"connecting to {service}"):
            return self.session.client(service, config=config)


def open_clients(region: str | None = None, profile: str | None = None) -> Clients:
    """Return connections with these credentials. Sends no request yet.

    Args:
        region: By default ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's region.
        profile: A profile in AWS's own configuration; by default ``AWS_PROFILE``.

    Raises:
        ConfigurationError: If boto3 isn't installed, the profile doesn't exist, or no region is set.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise missing_package("Deploying to AWS needs", "boto3", "aws") from error
    try:
        session = boto3.Session(region_name=region or os.environ.get("AWS_REGION"), profile_name=profile)
    except BotoCoreError as error:
        raise ConfigurationError(f"{str(error).rstrip('.')}.", hint="See `aws configure list-profiles`.") from error
    if session.region_name is None:
        raise ConfigurationError("No AWS region is set.", hint=_REGION_HINT)
    return Clients(session)


STACK_TAG = "lakegate:stack"
"""Tag of everything that belongs to a deployment. Its value is the stack's name."""
SHARED_NAMESPACE_ONLY = frozenset({"me-central-1", "me-south-1"})
"""Regions where AWS has only the shared namespace for buckets."""
_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,18}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DeploymentName:
    """The name of a deployment, and the names derived from it.

    Example:
        >>> DeploymentName("demo").stack, DeploymentName("demo").code_bucket("123456789012", "eu-central-1")
        ('lakegate-demo', 'lakegate-demo-fn-123456789012-eu-central-1-an')
    """

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"'{self.name}' can't name a deployment.",
                hint="Use at most 20 lower-case letters, digits and '-', starting with a letter, such as --name demo.",
                name=self.name,
            )

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return f"lakegate-{self.name}"

    def bucket(self, account: str, region: str) -> str:
        """Return the template's name for the bucket with landing files and warehouse."""
        return f"{self.stack}-{account}-{region}"

    def code_bucket(self, account: str, region: str) -> str:
        """Return the name of the bucket for functions' zips, in the account's own namespace.

        Nobody else can create buckets in that namespace, so nobody else can own this name. AWS has it in all regions
        but two, and requires names of this form in it.
        """
        own = "" if region in SHARED_NAMESPACE_ONLY else "-an"
        return f"{self.stack}-fn-{account}-{region}{own}"


_CREDENTIALS_HINT = "Provide some in the usual ways: aws login, AWS_PROFILE or --profile, AWS_ACCESS_KEY_ID, or a role."
_REGION_HINT = "Set one: --region eu-central-1, AWS_REGION, or in the profile."
_REFUSED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"})
"""Error codes for missing permissions."""
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown"})
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


class DeploymentError(LakegateError):
    """CloudFormation couldn't create, change or delete a deployment. The message names the resource and why."""

    code = "deployment"


def not_ours(what: str, stack: str, **context: object) -> DeploymentError:
    """Return the error for a bucket or repository that has a deployment's name, but not its tag."""
    return DeploymentError(
        f"{what} doesn't belong to stack {stack}: it lacks the tag {STACK_TAG}={stack}.",
        hint="Choose another --name, or tag it if it's this deployment's.",
        **context,
    )


def error_code(error: Any) -> str:
    """Return the code of a ``ClientError`` of AWS's library."""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_text(error: Any) -> str:
    """Return the message of a ``ClientError``."""
    return str(error.response.get("Error", {}).get("Message", "")).rstrip(".")


GONE = frozenset(
    {
        "404",
        "AWS.SimpleQueueService.NonExistentQueue",
        "ImageNotFoundException",
        "NoSuchBucket",
        "NoSuchKey",
        "NotFound",
        "QueueDoesNotExist",
        "RepositoryNotFoundException",
        "ResourceNotFoundException",
    }
)
"""Error codes for things that don't exist."""


@contextmanager
def translate_errors(doing: str, *, unless: Collection[str] = ()) -> Iterator[None]:
    """Turn boto3's errors in the body into ours.

    Args:
        doing: What the body is doing, for the message: ``looking at stack lakegate-demo``.
        unless: Error codes that silently end the body.

    Raises:
        ConfigurationError: If credentials, a region or a permission are missing.
        RetryableError: If AWS doesn't answer or is overloaded.
        DeploymentError: If AWS refuses for another reason.
    """
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        if error_code(error) not in unless:
            raise _refusal(error, doing) from error
    except exceptions.NoRegionError as error:
        raise ConfigurationError("No AWS region is set.", hint=_REGION_HINT) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.TokenRetrievalError) as error:
        raise ConfigurationError("No AWS credentials were found.", hint=_CREDENTIALS_HINT) from error
    except exceptions.HTTPClientError as error:
        reason = str(error).rstrip(".")
        raise RetryableError(f"AWS didn't answer while {doing} ({reason}).", hint="Check the network.") from error
    except exceptions.BotoCoreError as error:
        text = f"{doing[:1].upper()}{doing[1:]} failed: {str(error).rstrip('.')}."
        raise ConfigurationError(text, hint=_CREDENTIALS_HINT) from error


def _refusal(error: Any, doing: str) -> LakegateError:
    code, text = error_code(error), error_text(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    reason = f"{code}: {text}" if text else code
    if code in _REFUSED:
        return ConfigurationError(f"AWS rejected these credentials ({reason}).", hint=_CREDENTIALS_HINT)
    if code in DENIED:
        return ConfigurationError(
            f"These credentials don't allow {doing} ({reason}).",
            hint=f"The user or role needs the permission for {error.operation_name}.",
            operation=error.operation_name,
        )
    if code in _BUSY or status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
        return RetryableError(f"AWS is unavailable; it failed while {doing} ({reason}).", hint="Try again.")
    return DeploymentError(f"AWS refused {doing} ({reason}).", operation=error.operation_name)
