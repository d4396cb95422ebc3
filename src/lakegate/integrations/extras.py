"""The libraries of the orchestrators: there, and of a version that the adapter was proven with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from lakegate.errors import ConfigurationError


def require_extra(extra: str, package: str, minimum: str, below: str) -> None:
    """Make sure that a library is installed, in a version from ``minimum`` on and before ``below``.

    Call it before the first import of the library: that may fail in ways that say nothing to a user.

    Args:
        extra: The extra of lakegate that brings it: ``prefect``.
        package: Its name on the package index.
        minimum: First version that will do: ``3.8.8``.
        below: First version that won't any more: ``3.9``.

    Raises:
        ConfigurationError: It's missing or of another version. The hint is the command that fixes that.

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


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what marks a pre-release or a build: ``3.8.8rc1`` is ``3.8.8``."""
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
