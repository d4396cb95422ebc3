"""AWS's refusals in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakegate.errors import ConfigurationError, LakegateError, RetryableError

_CREDENTIALS_HINT = "Give some in the usual ways: aws login, AWS_PROFILE or --profile, AWS_ACCESS_KEY_ID, or a role."
_REGION_HINT = "Give one: --region eu-central-1, AWS_REGION, or the profile's."
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
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"})
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown"})
_SERVER_ERROR = 500


class DeploymentError(LakegateError):
    """A deployment that CloudFormation could not make, change or delete."""

    code = "deployment"


def error_code(error: Any) -> str:
    """Return the code of a ``ClientError`` of AWS's library."""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_text(error: Any) -> str:
    """Return what AWS says in a ``ClientError``."""
    return str(error.response.get("Error", {}).get("Message", "")).rstrip(".")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn what AWS's library raises in the body into our errors.

    Args:
        doing: What the body does, for the message: ``looking at stack lakegate-demo``.

    Raises:
        ConfigurationError: When there are no credentials or no region, or a permission is missing.
        RetryableError: When AWS does not answer, or cannot serve now.
        DeploymentError: When AWS refuses for another reason.
    """
    from botocore import exceptions  # noqa: PLC0415 - an extra, and slow to import

    try:
        yield
    except exceptions.ClientError as error:
        raise _refusal(error, doing) from error
    except exceptions.NoRegionError as error:
        raise ConfigurationError("No AWS region is set.", hint=_REGION_HINT) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.TokenRetrievalError) as error:
        raise ConfigurationError("No AWS credentials were found.", hint=_CREDENTIALS_HINT) from error
    except exceptions.HTTPClientError as error:
        said = str(error).rstrip(".")
        raise RetryableError(f"AWS does not answer while {doing} ({said}).", hint="Check the network.") from error
    except exceptions.BotoCoreError as error:
        text = f"{doing[:1].upper()}{doing[1:]} failed: {str(error).rstrip('.')}."
        raise ConfigurationError(text, hint=_CREDENTIALS_HINT) from error


def _refusal(error: Any, doing: str) -> LakegateError:
    code, text = error_code(error), error_text(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = f"{code}: {text}" if text else code
    if code in _REFUSED:
        return ConfigurationError(f"AWS does not accept these credentials ({said}).", hint=_CREDENTIALS_HINT)
    if code in _DENIED:
        return ConfigurationError(
            f"AWS does not allow {doing} with these credentials ({said}).",
            hint=f"The user or role needs the permission for {error.operation_name}.",
            operation=error.operation_name,
        )
    if code in _BUSY or status >= _SERVER_ERROR:
        return RetryableError(f"AWS could not serve while {doing} ({said}).", hint="Try again.")
    return DeploymentError(f"AWS refuses {doing} ({said}).", operation=error.operation_name)
