"""References to secrets in settings, and which hosts may get a secret without TLS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal, get_args

Scheme = Literal["env", "file", "aws-secret"]
"""Where a secret is: a variable, a file, AWS Secrets Manager."""

FORMS = "'env:NAME_OF_THE_VARIABLE', 'file:/run/secrets/NAME' or 'aws-secret:NAME_OR_ARN#JSON_KEY'"
"""The forms of a reference, for messages."""

_PLACES: dict[str, re.Pattern[str]] = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "file": re.compile(r"/[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]"),
    # https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html: letters of a name.
    "aws-secret": re.compile(r"(?:arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)?[A-Za-z0-9/_+=.@-]{1,519}"),
}


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is.

    Attributes:
        scheme: The kind of place.
        place: The variable's name, the file's path, or the secret's name or ARN.
        key: Key in an AWS secret that is a JSON object; ``None`` if the secret is the value itself.
    """

    scheme: Scheme
    place: str
    key: str | None = None

    @classmethod
    def parse(cls, text: str) -> SecretReference:
        """Parse a reference.

        Raises:
            ValueError: If it isn't a reference. The message doesn't show ``text``, which may be the secret itself.

        Example:
            >>> SecretReference.parse("aws-secret:lake/nessie#token")
            SecretReference(scheme='aws-secret', place='lake/nessie', key='token')
        """
        name, _, place = text.partition(":")
        key = None
        if name == "aws-secret" and "#" in place:
            place, _, key = place.partition("#")
        for scheme in get_args(Scheme):
            if name == scheme and key != "" and _PLACES[scheme].fullmatch(place):
                return cls(scheme, place, key)
        raise ValueError(f"isn't a reference to a secret, such as {FORMS}")

    def __str__(self) -> str:
        return f"{self.scheme}:{self.place}" + (f"#{self.key}" if self.key else "")


def is_reference(text: str) -> bool:
    """Return whether a string refers to a secret.

    Example:
        >>> is_reference("env:SHOP_PASSWORD"), is_reference("rest")
        (True, False)
    """
    try:
        SecretReference.parse(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, judged by name or address without a lookup.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("spark.localhost"), is_loopback("10.0.0.1")
        (True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
