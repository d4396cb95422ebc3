"""Runs under an orchestrator: one package each, imported only by name.

An orchestrator adds no write–audit–publish logic of its own. It calls ``Lake.write``, ``Lake.audit_run`` and
``Lake.publish_run``, each idempotent by run id, and ``Lake.cancel_run`` when it gives up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from lakegate.errors import ConfigurationError, LakegateError
from lakegate.progress import without_secrets


def require_extra(extra: str, package: str, minimum: str, below: str) -> None:
    """Make sure that a supported version of a library is installed.

    Call it before the first import of the library, which may otherwise fail with an unhelpful error.

    Args:
        extra: The extra of lakegate that installs the library: ``prefect``.
        minimum: The lowest supported version: ``3.8.8``.
        below: The first unsupported version after that: ``3.9``.

    Raises:
        ConfigurationError: If the library is missing or unsupported. The hint is the command that fixes it.

    Example:
        >>> require_extra("x", "no-such-thing", "1.0", "2")
        Traceback (most recent call last):
        lakegate.errors.ConfigurationError: no-such-thing isn't installed; lakegate needs no-such-thing>=1.0,<2.
    """
    wanted = f"{package}>={minimum},<{below}"
    try:
        found = version(package)
    except PackageNotFoundError:
        problem = f"{package} isn't installed; lakegate needs {wanted}."
    else:
        if _release(minimum) <= _release(found) < _release(below):
            return
        problem = f"{package} {found} is installed; lakegate needs {wanted}."
    raise ConfigurationError(problem, hint=f"pip install 'lakegate[{extra}]'", extra=extra, package=package)


@contextmanager
def leaving_out_secrets() -> Iterator[None]:
    """Leave secrets, and what other programs said, out of the body's errors.

    Orchestrators store an error's text, and that of its causes.
    """
    try:
        yield
    except LakegateError as error:
        error.message = without_secrets(error.message)
        error.hint = None if error.hint is None else without_secrets(error.hint)
        error.args = (error.message,)
        raise error from None


def _release(text: str) -> tuple[int, ...]:
    """Return a version's numbers, without pre-release and build: ``3.8.8rc1`` is ``3.8.8``."""
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
