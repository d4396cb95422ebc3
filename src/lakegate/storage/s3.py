"""Amazon S3 and compatible stores."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from lakegate.config import S3Settings
from lakegate.errors import ConfigurationError, SourceError, StorageUnavailableError, missing_package
from lakegate.model.secrets import is_loopback
from lakegate.progress import redact
from lakegate.storage.objects import ATTEMPTS, CutError, ObjectAddress, ObjectStore, StoredObject, StoreErrors, retried

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2RequestTypeDef

ERRORS = StoreErrors(
    "S3",
    endpoint="s3.endpoint or AWS_ENDPOINT_URL",
    address="the section [s3] of the settings: endpoint, region, path_style",
    credentials="Provide credentials in the usual ways: AWS_PROFILE, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or "
    "a role.",
)
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_CONNECTIONS = 32
_DELETED_AT_ONCE = 1000
_IN_PARTS_FROM = 1 << 30
_PART_BYTES = 64 << 20
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")
_ASK_REGION = "us-east-1"  # its endpoint redirects to a bucket's region
_CLOCKS_CODE = "RequestTimeTooSkewed"
_CONFLICT_CODE = "ConditionalRequestConflict"  # two clients are creating the same object, and neither has won yet
_NO_REASON = frozenset({"400", "403"})
_CONTENT_HASH = "x-amz-content-sha256"
_ANY_CONTENT = "UNSIGNED-PAYLOAD"
_STATUS_OF: Mapping[str, int] = {
    **dict.fromkeys(("InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout"), 503),
    **dict.fromkeys(("Throttling", "ThrottlingException"), 503),
    **dict.fromkeys(("ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken"), 401),
    **dict.fromkeys(("SignatureDoesNotMatch", "TokenRefreshRequired"), 401),
    **dict.fromkeys(("AccessDenied", "403", "Forbidden", "AllAccessDisabled"), 403),
    **dict.fromkeys(("NoSuchKey", "404", "NotFound"), 404),
    **dict.fromkeys(("PreconditionFailed", "412"), 412),
}


class S3Store(ObjectStore):
    """Objects in S3."""

    def __init__(self, settings: S3Settings) -> None:
        self._client: S3Client = s3_client(settings)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``, without incomplete uploads and delete markers."""
        address = ObjectAddress.parse(prefix)
        page, token = self._page(address, None)
        yield from page
        while token is not None:
            del page  # free it before fetching the next one
            page, token = self._page(address, token)
            yield from page

    def stat(self, uri: str) -> StoredObject:
        """Return the object with exactly this key."""
        head = self._head(uri)
        return StoredObject(
            uri, head["ContentLength"], head["LastModified"], _plain(head["ETag"]), head.get("VersionId")
        )

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, up to a thousand per request. Missing ones are ignored."""
        by_bucket: dict[str, list[ObjectAddress]] = defaultdict(list)
        for address in map(ObjectAddress.parse, uris):
            by_bucket[address.bucket].append(address)
        for addresses in by_bucket.values():
            for start in range(0, len(addresses), _DELETED_AT_ONCE):
                retried(partial(self._delete_all, addresses[start : start + _DELETED_AT_ONCE]))

    def _page(self, address: ObjectAddress, token: str | None) -> tuple[Sequence[StoredObject], str | None]:
        request: ListObjectsV2RequestTypeDef = {"Bucket": address.bucket, "Prefix": address.key}
        if token is not None:
            request["ContinuationToken"] = token
        with translated(address.uri):
            page = self._client.list_objects_v2(**request)
        found = tuple(
            StoredObject(f"{address.root}/{entry['Key']}", entry["Size"], entry["LastModified"], _plain(entry["ETag"]))
            for entry in page.get("Contents", ())
        )
        if not page.get("IsTruncated"):
            return found, None
        following = page.get("NextContinuationToken")
        if not following:  # files would be left out, and nobody would notice
            raise SourceError(
                f"S3 cut off the list of objects below '{address.uri}' without a token for the rest.",
                hint="The store must support version 2 of S3's ListObjects.",
                file=address.uri,
            )
        return found, following

    def _head(self, uri: str) -> Any:
        from botocore.exceptions import ClientError

        address = ObjectAddress.parse(uri)
        with translated(uri):
            try:
                return self._client.head_object(Bucket=address.bucket, Key=address.key)
            except ClientError as error:
                # An answer to HEAD has no body, and so no reason, such as an expired token or a wrong clock.
                if error.response["Error"]["Code"] in _NO_REASON:
                    self._client.get_object(Bucket=address.bucket, Key=address.key, Range="bytes=0-0")["Body"].close()
                raise

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        address = ObjectAddress.parse(uri)
        with translated(uri):
            answer = self._client.get_object(
                Bucket=address.bucket, Key=address.key, Range=f"bytes={start}-{end - 1}", IfMatch=f'"{etag}"'
            )
        try:
            with translated(uri):
                return answer["Body"].read()
        except StorageUnavailableError as error:
            raise CutError(error.message, hint=error.hint, file=uri) from error

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        address = ObjectAddress.parse(uri)
        with translated(uri):
            self._client.put_object(
                Bucket=address.bucket, Key=address.key, Body=content, IfNoneMatch="*", Metadata=metadata
            )

    def _upload(self, uri: str, file: BinaryIO) -> None:
        from boto3.s3.transfer import TransferConfig

        address = ObjectAddress.parse(uri)
        # A process that is killed leaves the parts of its upload behind: only large files are uploaded in parts.
        config = TransferConfig(multipart_threshold=_IN_PARTS_FROM, multipart_chunksize=_PART_BYTES, use_threads=False)
        with translated(uri):
            self._client.upload_fileobj(file, address.bucket, address.key, Config=config)

    def _metadata(self, uri: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._head(uri)["Metadata"]
        return found

    def _delete_all(self, addresses: Sequence[ObjectAddress]) -> None:
        uris = {address.key: address.uri for address in addresses}
        with translated(addresses[0].uri):
            answer = self._client.delete_objects(
                Bucket=addresses[0].bucket, Delete={"Objects": [{"Key": key} for key in uris], "Quiet": True}
            )
        for problem in answer.get("Errors", ()):
            uri = uris.get(problem.get("Key", ""), addresses[0].uri)
            error = refusal(problem.get("Code", ""), problem.get("Message", ""), uri)
            if isinstance(error, StorageUnavailableError):
                raise CutError(error.message, hint=error.hint, file=uri)
            if not isinstance(error, FileNotFoundError):
                raise error


@lru_cache(maxsize=8)
def s3_client(settings: S3Settings) -> S3Client:
    """Return the thread-safe client for these settings.

    Raises:
        ConfigurationError: When the library isn't installed, or its own configuration is invalid.
    """
    client: S3Client = _client("s3", settings, settings.endpoint)
    if settings.bucket_owner is not None:
        expect_owner(client, settings.bucket_owner)
    return client


def _client(service: str, settings: S3Settings, endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise missing_package("Files on S3 need", "boto3", "s3") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": "path" if settings.path_style else "auto"},
    )
    try:
        region = settings.region or os.environ.get("AWS_REGION")
        session: Any = boto3.Session(region_name=region, botocore_session=_botocore_session())
        region = session.region_name or _ASK_REGION
        client = session.client(service, region_name=region, endpoint_url=endpoint, config=config)
        if is_loopback(urlsplit(client.meta.endpoint_url).hostname or ""):
            direct = config.merge(Config(proxies={}))
            client = session.client(service, region_name=region, endpoint_url=endpoint, config=direct)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"The configuration for S3 is invalid: {str(error).rstrip('.')}.",
            hint="Check the section [s3] of the settings, and the AWS_* variables and profile.",
        ) from error
    return client


class S3RequestSigner:
    """Signs requests to S3 with this process's credentials, for programs that have none.

    Attributes:
        endpoint: The store's address, without a bucket.
        region: Its region.
        path_style: Whether the bucket is in the path, not in the host name.
    """

    def __init__(self, settings: S3Settings) -> None:
        client = s3_client(settings)
        self.endpoint: str = client.meta.endpoint_url
        self.region: str = client.meta.region_name
        self.path_style = settings.path_style
        self._credentials = _botocore_session().get_credentials()

    def signed(self, method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return a request's headers with a signature. The request's content isn't signed, unless its hash is a header.

        Raises:
            ConfigurationError: When this process has no credentials.
        """
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        class Auth(S3SigV4Auth):
            def payload(self, request: AWSRequest) -> str:
                return str(request.context[_CONTENT_HASH])

        content_hash = next((value for key, value in headers.items() if key.lower() == _CONTENT_HASH), _ANY_CONTENT)
        if self._credentials is None:
            raise ConfigurationError(
                "There are no credentials for S3, so requests of writers can't be signed.", hint=ERRORS.credentials
            )
        request = AWSRequest(method=method, url=url, headers=dict(headers))
        request.context[_CONTENT_HASH] = content_hash
        Auth(self._credentials.get_frozen_credentials(), "s3", self.region).add_auth(request)
        return dict(request.headers.items())


class RoleKeys(NamedTuple):
    """Keys for S3 that end by themselves."""

    access_key: str
    secret_key: str
    session_token: str
    expires: datetime

    def __repr__(self) -> str:
        """Return text without the keys."""
        return f"RoleKeys(expires={self.expires:%Y-%m-%dT%H:%M:%SZ})"


class S3Role:
    """A role whose rights are lent to other programs, in part.

    Args:
        arn: Name of the role, which this process may assume.
    """

    def __init__(self, settings: S3Settings, arn: str) -> None:
        host = urlsplit(settings.endpoint or "").hostname or ""
        # Stores other than AWS answer for STS, too.
        self._client = _client("sts", settings, None if host.endswith(_AWS_HOSTS) else settings.endpoint)
        self._arn = arn

    def keys(self, name: str, policy: Mapping[str, Any], seconds: int) -> RoleKeys:
        """Return keys that allow what the role and ``policy`` both allow.

        Args:
            name: Who has them, for AWS's log.
            seconds: How long they are valid: at least 900, at most what the role allows.

        Raises:
            StorageUnavailableError: STS doesn't answer.
            LakegateError: It refuses, or this process has no credentials.
        """
        with translated(self._arn):
            keys = self._client.assume_role(
                RoleArn=self._arn,
                RoleSessionName=name,
                Policy=json.dumps(policy, separators=(",", ":")),
                DurationSeconds=seconds,
            )["Credentials"]
        return RoleKeys(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], keys["Expiration"])


def expect_owner(client: S3Client, account: str) -> None:
    """Make S3 refuse a client's requests to buckets that don't belong to ``account``.

    Once a bucket is deleted, anyone can create one with the same name.
    """

    def add(params: dict[str, Any], model: OperationModel, **_: object) -> None:
        if model.input_shape is not None and "ExpectedBucketOwner" in model.input_shape.members:
            params.setdefault("ExpectedBucketOwner", account)

    client.meta.events.register("provide-client-params.s3", add)


def s3_place(settings: S3Settings) -> S3Settings:
    """Return S3's location from settings, variables and profile combined, for programs that don't read these.

    Raises:
        ConfigurationError: When the library isn't installed, or its own configuration is invalid.
    """
    meta = s3_client(settings).meta
    host = urlsplit(meta.endpoint_url).hostname or ""
    try:
        return S3Settings(
            endpoint=None if host.endswith(_AWS_HOSTS) else meta.endpoint_url,
            region=meta.region_name,
            path_style=settings.path_style or _is_address(host),
        )
    except ValidationError:  # its text has the address, which may contain a password
        raise ConfigurationError(
            "The address of S3 in AWS_ENDPOINT_URL or the profile has a user, a password or a path.",
            hint="Write it as https://store.example.com.",
        ) from None


def _botocore_session() -> Session:
    """Return a botocore session with a faster timestamp parser, which halves the time of listings."""
    from botocore.session import get_session
    from botocore.utils import parse_timestamp

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
    """Translate exceptions of the AWS library about ``uri`` into the errors of an ``ObjectStore``."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    try:
        yield
    except exceptions.ClientError as error:
        answer = error.response["Error"]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        refused = refusal(answer.get("Code", ""), answer.get("Message", ""), uri, status)
        if error.operation_name.startswith("AssumeRole") and not isinstance(refused, StorageUnavailableError):
            # STS refuses the role, before S3 is asked.
            refused = ERRORS.unauthenticated(uri, redact(str(error).rstrip(".")))
        raise refused from error
    except exceptions.BotoCoreError as error:
        reason = redact(str(error).rstrip("."))
        away = (exceptions.ConnectionError, exceptions.HTTPClientError, exceptions.IncompleteReadError)
        if isinstance(error, away) and not isinstance(error, exceptions.SSLError):
            raise ERRORS.unavailable(uri, reason) from error
        raise ConfigurationError(
            f"Can't request '{uri}' from S3: {reason}.", hint=ERRORS.credentials, file=uri
        ) from error
    except HTTPError as error:  # botocore doesn't convert TLS errors while a body is read
        raise ERRORS.unavailable(uri, str(error).rstrip(".")) from error


def refusal(code: str, message: str, uri: str, status: int = 0) -> Exception:
    """Return the error for S3's response: its code (such as ``AccessDenied``), its message and the HTTP status."""
    reason = f"{code}: {message}".rstrip(".") if message else code
    if code == _CONFLICT_CODE:
        return CutError(f"Another client is writing '{uri}'.", hint="Try again.", file=uri)
    if code == _CLOCKS_CODE:
        return StorageUnavailableError(
            f"S3 refused a request for '{uri}': this machine's clock or the store's is wrong ({reason}).",
            hint="Nothing was published. Synchronize the clock with NTP, then try again.",
            file=uri,
        )
    if status < HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.NOT_IMPLEMENTED:
        if code == "NoSuchBucket":
            return ERRORS.no_bucket(uri)
        # Other stores have their own codes for too many requests.
        is_limited = status == HTTPStatus.TOO_MANY_REQUESTS
        status = _STATUS_OF.get(code, status if is_limited else HTTPStatus.BAD_REQUEST)
    return ERRORS.refused(uri, status, reason)


def _is_address(host: str) -> bool:
    """Return whether a bucket's name can't be a subdomain of a host, as with IP addresses."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return host == "localhost"


def _plain(etag: str) -> str:
    return etag.strip('"')
