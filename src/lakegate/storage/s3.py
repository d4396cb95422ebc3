"""The connection to S3: made by the AWS library, by its own rules for credentials, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from lakegate.config import S3Settings
from lakegate.errors import ConfigurationError, LakegateError, SourceError
from lakegate.narration import redact
from lakegate.storage.errors import denied, gone, no_bucket, replaced, unavailable
from lakegate.storage.retrying import ATTEMPTS, CutError

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

CREDENTIALS_HINT = (
    "Give credentials in the usual ways: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role."
)
_ENDPOINT = "s3.endpoint or AWS_ENDPOINT_URL"
ADDRESS_HINT = "Check the path, and the section [s3] of the settings: endpoint, region, path_style."
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_CONNECTIONS = 32
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")
_ASK_REGION = "us-east-1"  # tells where a bucket is
_CONFLICT_CODE = "ConditionalRequestConflict"  # two create the same object at once, and neither has won yet
_BUSY_CODES = frozenset(
    {
        "InternalError",
        "ServiceUnavailable",
        "SlowDown",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "Throttling",
        "ThrottlingException",
    }
)
_REFUSED_CODES = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"})
_DENIED_CODES = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled"})
_GONE_CODES = frozenset({"NoSuchKey", "404", "NotFound"})
_REPLACED_CODES = frozenset({"PreconditionFailed", "412"})


@lru_cache(maxsize=8)
def s3_client(settings: S3Settings) -> S3Client:
    """Return the client for these settings; may be used from any thread.

    Raises:
        ConfigurationError: When the library is not installed, or its own configuration is wrong.
    """
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "Files on S3 need the package boto3, which is not installed.", hint="pip install 'lakegate[s3]'", extra="s3"
        ) from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": "path" if settings.path_style else "auto"},
    )
    try:
        region = settings.region or os.environ.get("AWS_REGION")
        session = boto3.Session(region_name=region, botocore_session=_core())
        region = session.region_name or _ASK_REGION
        return session.client("s3", region_name=region, endpoint_url=settings.endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"The configuration for S3 is wrong: {str(error).rstrip('.')}.",
            hint="Check the section [s3] of the settings, and the AWS_* variables and profile.",
        ) from error


def s3_place(settings: S3Settings) -> S3Settings:
    """Return where S3 is by settings, variables and profile together, for programs that look at none of these.

    Raises:
        ConfigurationError: When the library is not installed, or its own configuration is wrong.
    """
    meta = s3_client(settings).meta
    host = urlsplit(meta.endpoint_url).hostname or ""
    try:
        return S3Settings(
            endpoint=None if host.endswith(_AWS_HOSTS) else meta.endpoint_url,
            region=meta.region_name,
            path_style=settings.path_style or _is_address(host),
        )
    except ValidationError:  # whose text holds the address, and that maybe a password
        raise ConfigurationError(
            "The address of S3 in AWS_ENDPOINT_URL or the profile has a user, a password or a path in it.",
            hint="Write it as https://store.example.com.",
        ) from None


def _core() -> Session:
    """Return a session of the AWS library whose listings take half the time: most of it goes into their timestamps."""
    from botocore.session import get_session  # noqa: PLC0415 - an extra, and slow to import
    from botocore.utils import parse_timestamp  # noqa: PLC0415

    def parse(value: Any) -> datetime:
        if isinstance(value, str) and value.endswith("Z"):
            with suppress(ValueError):
                return datetime.fromisoformat(value)
        return parse_timestamp(value)

    session = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse)
    return session


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Turn what the AWS library raises in the body into the errors that files have, and ours.

    Args:
        uri: What the body looks at, for the message.

    Raises:
        FileNotFoundError: When the object is not there.
        PermissionError: When it may not be read.
        ReplacedError: When it is not the one that was asked for any more.
        ConfigurationError: When there are no credentials, or S3 does not accept them.
        SourceError: When the bucket does not exist, or S3 refuses for another reason.
        StorageUnavailableError: When S3 does not answer, or cannot serve now, again and again.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra, and slow to import
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        said = error.response["Error"]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise refusal(said.get("Code", ""), said.get("Message", ""), uri, status) from error
    except BotoCoreError as error:
        raise _trouble(error, uri) from error
    except HTTPError as error:  # of TLS, while a body is read: botocore lets it through
        raise unavailable("S3", uri, str(error).rstrip("."), _ENDPOINT) from error


def refusal(code: str, message: str, uri: str, status: int = 0) -> Exception:
    """Return the error for what S3 answers; see :func:`translated`.

    Args:
        code: Its word for it: ``AccessDenied``.
        message: Its sentence.
        uri: What it was asked for.
        status: The answer's HTTP status.
    """
    said = f"{code}: {message}".rstrip(".") if message else str(code)
    if code == _CONFLICT_CODE:
        return CutError(f"'{uri}' is being written by another.", hint="Try again.", file=uri)
    if code in _BUSY_CODES or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED):
        return unavailable("S3", uri, said, _ENDPOINT)
    return _as_file_error(code, said, uri) or _as_our_error(code, said, uri)


def _is_address(host: str) -> bool:
    """Tell whether a host is one that no bucket's name can be put before."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return host == "localhost"


def _as_file_error(code: str, said: str, uri: str) -> OSError | None:
    if code in _GONE_CODES:
        return gone(uri)
    if code in _REPLACED_CODES:
        return replaced(uri)
    if code in _DENIED_CODES:
        return denied(uri, said)
    return None


def _as_our_error(code: str, said: str, uri: str) -> LakegateError:
    if code in _REFUSED_CODES:
        return ConfigurationError(
            f"S3 does not accept our credentials for '{uri}' ({said}).", hint=CREDENTIALS_HINT, file=uri
        )
    if code == "NoSuchBucket":
        return no_bucket(uri, _ENDPOINT)
    return SourceError(f"S3 refuses to serve '{uri}' ({said}).", hint=ADDRESS_HINT, file=uri)


def _trouble(error: Exception, uri: str) -> Exception:
    from botocore import exceptions  # noqa: PLC0415 - an extra, and slow to import

    said = redact(str(error).rstrip("."))
    away = (exceptions.ConnectionError, exceptions.HTTPClientError, exceptions.IncompleteReadError)
    if isinstance(error, away) and not isinstance(error, exceptions.SSLError):
        return unavailable("S3", uri, said, _ENDPOINT)
    return ConfigurationError(f"'{uri}' cannot be asked for: {said}.", hint=CREDENTIALS_HINT, file=uri)
