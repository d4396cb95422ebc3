"""Object stores without a server: addresses, missing libraries, and what their refusals become."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from botocore.exceptions import ClientError
from google.api_core.exceptions import GoogleAPICallError, RetryError, from_http_status
from google.auth.exceptions import DefaultCredentialsError, TransportError
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import SSLError

from lakegate.config import AdlsSettings, GcsSettings, StorageSettings
from lakegate.errors import ConfigurationError, InputError, LakegateError, SourceError, StorageUnavailableError
from lakegate.progress import without_secrets
from lakegate.storage import adls, gcs, open_store, s3
from lakegate.storage.objects import CutError, ObjectAddress, ReplacedError, canonical

ADLS_ROOT = "abfss://lake@acme.dfs.core.windows.net"


@pytest.fixture(autouse=True)
def _no_clients() -> Iterator[None]:
    for make in (gcs.gcs_client, adls.adls_client):
        make.cache_clear()
    yield
    for make in (gcs.gcs_client, adls.adls_client):
        make.cache_clear()


@given(st.sampled_from(["s3://lake", "s3a://lake", "gs://lake", ADLS_ROOT]), st.text())
def test_an_address_is_its_uri(root: str, key: str) -> None:
    address = ObjectAddress.parse(f"{root}/{key}")
    assert (address.root, address.key) == (root, key)
    assert address.uri == f"{root}/{key}"
    assert canonical(canonical(address.uri)) == canonical(address.uri)


def test_an_accounts_host_is_the_same_in_any_case() -> None:
    """Otherwise a file that is named with another spelling would be published again."""
    assert canonical("ABFS://lake@ACME.dfs.core.windows.net/In/A.csv") == f"{ADLS_ROOT}/In/A.csv"
    assert canonical("s3://Lake@X/A.csv") == "s3://Lake@X/A.csv"


def test_an_account_keeps_the_endpoint_that_the_user_chose() -> None:
    """Spark's settings (``fs.azure.account.key.HOST``) name the host, and a private network may admit only one."""
    assert canonical("abfss://lake@ACME.blob.core.windows.net/A") == "abfss://lake@acme.blob.core.windows.net/A"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("gs:///a", "doesn't name a bucket"),
        ("gs://lake@host.example/a", "doesn't name a bucket"),
        ("abfss://lake/a", "doesn't name a container and account"),
        ("abfss://@acme.dfs.core.windows.net/a", "doesn't name a container and account"),
        ("abfss://lake@acme/a", "doesn't name a container and account"),
        ("ftp://lake/a", "isn't in a supported object store"),
        ("/lake/a", "isn't in a supported object store"),
    ],
)
def test_what_is_no_address(uri: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        ObjectAddress.parse(uri)
    assert "://" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [("gs://lake/a", "google.cloud.storage", "gcs"), (f"{ADLS_ROOT}/a", "azure.storage.blob", "azure")],
)
def test_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, uri: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match="isn't installed") as caught:
        open_store(uri, StorageSettings())
    assert caught.value.hint == f"pip install 'lakegate[{extra}]'"


def google(make: Callable[..., Exception], *given: object) -> Exception:
    """Make an error with a function that has no types."""
    return make(*given)


def test_google_is_not_asked_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> object:
        raise google(DefaultCredentialsError, "there are none")

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr("google.auth.default", none)
    with pytest.raises(ConfigurationError, match="there are none") as caught:
        open_store("gs://lake/a", StorageSettings())
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(caught.value.hint)


def test_an_endpoint_without_tls_gets_none_of_googles_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(**_: object) -> object:
        raise AssertionError("credentials were looked for")

    monkeypatch.setattr("google.auth.default", never)
    open_store("gs://lake/a", StorageSettings(gcs=GcsSettings(endpoint="http://127.0.0.1:9")))


@pytest.mark.parametrize(
    ("host", "endpoint", "url"),
    [
        ("acme.dfs.core.windows.net", None, "https://acme.blob.core.windows.net/"),
        ("acme.blob.core.windows.net", None, "https://acme.blob.core.windows.net/"),
        ("acme.dfs.core.chinacloudapi.cn", None, "https://acme.blob.core.chinacloudapi.cn/"),
        ("acme.dfs.core.windows.net", "http://127.0.0.1:10000", "http://127.0.0.1:10000/acme"),
    ],
)
def test_where_an_account_is(monkeypatch: pytest.MonkeyPatch, host: str, endpoint: str | None, url: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    client = adls.adls_client(host, AdlsSettings(endpoint=endpoint))
    assert client.url.rstrip("/") == url.rstrip("/")
    assert client.credential.account_name == "acme"


def test_the_key_of_another_account_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "other")
    client = adls.adls_client("acme.dfs.core.windows.net", AdlsSettings())
    assert type(client.credential).__name__ == "DefaultAzureCredential"


@pytest.mark.parametrize("name", ["AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"])
def test_what_an_account_is_used_with_is_left_out_of_logs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(other, raising=False)
    secret = f"{name.lower()}-of-this-test"
    monkeypatch.setenv(name, secret)
    said = f"GET https://acme.example/a/{secret} failed"
    assert secret in without_secrets(said)
    adls.adls_client("acme.dfs.core.windows.net", AdlsSettings())
    assert secret not in without_secrets(said)


_GOOGLE: list[tuple[Exception, type[Exception]]] = [
    (google(from_http_status, 404, "No such object: lake/a"), FileNotFoundError),
    (google(from_http_status, 404, "The specified bucket does not exist."), SourceError),
    (google(from_http_status, 412, "conditionNotMet"), ReplacedError),
    (google(from_http_status, 403, "denied"), PermissionError),
    (google(from_http_status, 401, "who are you"), ConfigurationError),
    (google(from_http_status, 429, "slow down"), StorageUnavailableError),
    (google(from_http_status, 503, "busy"), StorageUnavailableError),
    (google(from_http_status, 400, "no"), SourceError),
    (google(RetryError, "given up", None), StorageUnavailableError),
    (google(TransportError, "no route"), StorageUnavailableError),
    (google(DefaultCredentialsError, "none"), ConfigurationError),
]


@pytest.mark.parametrize(("raised", "becomes"), _GOOGLE, ids=lambda value: getattr(value, "__name__", str(value)[:30]))
def test_what_google_refuses(raised: GoogleAPICallError, becomes: type[Exception]) -> None:
    with pytest.raises(becomes) as caught, gcs.translated("gs://lake/a.csv"):
        raise raised
    _tells(caught.value, "gs://lake/a.csv")


def _azure(status: int, code: str) -> HttpResponseError:
    response: Any = SimpleNamespace(status_code=status, reason=code, headers={}, request=None, body=lambda: b"")
    error: Any = HttpResponseError(message=code, response=response)
    error.error_code = code
    return cast("HttpResponseError", error)


_AZURE: list[tuple[Exception, type[Exception]]] = [
    (_azure(404, "BlobNotFound"), FileNotFoundError),
    (_azure(404, "ContainerNotFound"), SourceError),
    (_azure(412, "ConditionNotMet"), ReplacedError),
    (_azure(409, "BlobAlreadyExists"), ReplacedError),
    (_azure(403, "AuthorizationPermissionMismatch"), PermissionError),
    (_azure(403, "AuthenticationFailed"), ConfigurationError),
    (_azure(401, "InvalidAuthenticationInfo"), ConfigurationError),
    (_azure(503, "ServerBusy"), StorageUnavailableError),
    (_azure(400, "InvalidUri"), SourceError),
    (ServiceRequestError("no route"), StorageUnavailableError),
    (HttpResponseError("the answer broke off"), StorageUnavailableError),
    (ClientAuthenticationError("no identity"), ConfigurationError),
]


@pytest.mark.parametrize(("raised", "becomes"), _AZURE, ids=lambda value: getattr(value, "__name__", str(value)[:30]))
def test_what_azure_refuses(raised: Exception, becomes: type[Exception]) -> None:
    with pytest.raises(becomes) as caught, adls.translated(f"{ADLS_ROOT}/a.csv"):
        raise raised
    _tells(caught.value, f"{ADLS_ROOT}/a.csv")


@pytest.mark.parametrize(
    ("code", "status", "becomes"),
    [
        ("InternalError", 0, StorageUnavailableError),
        ("SlowDown", 503, StorageUnavailableError),
        ("ErrTooManyRequest", 429, StorageUnavailableError),
        ("429", 429, StorageUnavailableError),
        ("Whatever", 500, StorageUnavailableError),
        ("NotImplemented", 501, SourceError),
        ("ConditionalRequestConflict", HTTPStatus.CONFLICT, CutError),
        ("NoSuchKey", 404, FileNotFoundError),
        ("NoSuchBucket", 404, SourceError),
        ("AccessDenied", 403, PermissionError),
        ("ExpiredToken", 400, ConfigurationError),
        ("TokenRefreshRequired", 400, ConfigurationError),
        ("InvalidSecurity", 403, ConfigurationError),
        ("PreconditionFailed", 412, ReplacedError),
    ],
)
def test_what_s3_refuses(code: str, status: int, becomes: type[Exception]) -> None:
    error = s3.refusal(code, "in words", "s3://lake/a.csv", status)
    assert isinstance(error, becomes)
    _tells(error, "s3://lake/a.csv")


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredTokenException", "InvalidIdentityToken"])
def test_a_role_that_cannot_be_assumed_is_no_fault_of_the_object(code: str) -> None:
    refused: Any = {"Error": {"Code": code, "Message": "No."}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    with pytest.raises(ConfigurationError, match=code) as caught, s3.translated("s3://lake/a.csv"):
        raise ClientError(refused, "AssumeRoleWithWebIdentity")
    _tells(caught.value, "s3://lake/a.csv")


@pytest.mark.parametrize(("code", "status"), [("Throttling", 400), ("TooManyRequests", 429), ("InternalFailure", 500)])
def test_a_role_that_cannot_be_assumed_right_now_is_a_reason_to_try_later(code: str, status: int) -> None:
    busy: Any = {"Error": {"Code": code, "Message": "Rate exceeded"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(StorageUnavailableError, match=code), s3.translated("s3://lake/a.csv"):
        raise ClientError(busy, "AssumeRole")


def test_a_connection_to_s3_that_tls_ends_in_a_body_is_a_reason_to_try_later() -> None:
    with pytest.raises(StorageUnavailableError, match="bad record mac") as caught, s3.translated("s3://lake/a.csv"):
        raise SSLError("bad record mac")
    _tells(caught.value, "s3://lake/a.csv")


def _tells(error: BaseException, uri: str) -> None:
    """Check that the error names what it is about, or leaves that to who shows its sentence."""
    if isinstance(error, LakegateError):
        assert error.context["file"] == uri
        assert error.hint
    else:
        assert isinstance(error, OSError)
        assert error.filename == uri
