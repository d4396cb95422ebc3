"""The embedded stack: Nessie and Spark Connect on this machine, with nothing to install and nothing to run beforehand.

Only :mod:`lakegate.components` and the command line know it; to everything else the stack is just an address. From
the outside in: :mod:`~lakegate.local.stack` (up, down, status), :mod:`~lakegate.local.stack` (start side by side,
all or none),
:mod:`~lakegate.local.servers` (the two command lines), :mod:`~lakegate.local.servers` (does it answer?),
:mod:`~lakegate.local.process` (daemons), :mod:`~lakegate.local.state` (what is remembered),
:mod:`~lakegate.local.stores` (what Spark needs for object stores), :mod:`~lakegate.local.archives`
(classes ready to be mapped), :mod:`~lakegate.local.artifacts` and :mod:`~lakegate.local.java` (jars, the JRE, and whom
it trusts).

A third server is one more :class:`~lakegate.local.servers.Server` in ``SERVERS`` and its name in ``SERVICE_NAMES``.
"""

from __future__ import annotations

from lakegate.local.artifacts import prepare
from lakegate.local.stack import LocalStack
from lakegate.local.state import ServiceState, ServiceStatus, StackState

__all__ = ["LocalStack", "ServiceState", "ServiceStatus", "StackState", "prepare"]
