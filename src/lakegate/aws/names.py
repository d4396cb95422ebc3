"""What the parts of one deployment are called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakegate.errors import InputError

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,18}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DeploymentName:
    """The name of a deployment, and the names that are made of it.

    Raises:
        InputError: When it cannot be part of the name of a bucket.

    Example:
        >>> DeploymentName("demo").stack, DeploymentName("demo").code_bucket("123456789012", "eu-central-1")
        ('lakegate-demo', 'lakegate-demo-code-123456789012-eu-central-1')
    """

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"'{self.name}' cannot name a deployment.",
                hint="Use lower-case letters, digits and '-', a letter first, 20 at most, such as --name demo.",
                name=self.name,
            )

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return f"lakegate-{self.name}"

    def bucket(self, account: str, region: str) -> str:
        """Return the name of the bucket for landing and warehouse, as the template makes it."""
        return f"{self.stack}-{account}-{region}"

    def code_bucket(self, account: str, region: str) -> str:
        """Return the name of the bucket for functions' zips."""
        return f"{self.stack}-code-{account}-{region}"
