"""A run under an orchestrator: one module or package each, loaded by name only.

An orchestrator adds no logic of write–audit–publish: it calls ``Lake.write``, ``Lake.audit_run`` and
``Lake.publish_run``, each idempotent by run id, and ``Lake.cancel_run`` when it gives up.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from lakegate.errors import ConfigurationError


def require_extra(extra: str, package: str, minimum: str, below: str) -> None:
    """Make sure that a library is installed, in a version that its integration is tested with.

    Call it before the first import of the library, which may otherwise fail with an error that helps no user.

    Args:
        extra: The extra of lakegate that installs it: ``prefect``.
        minimum: The lowest supported version: ``3.8.8``.
        below: The lowest unsupported version above that: ``3.9``.

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
    """Return the numbers of a version, without pre-release and build: ``3.8.8rc1`` is ``3.8.8``."""
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
