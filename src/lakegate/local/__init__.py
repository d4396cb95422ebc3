"""The embedded stack: Nessie and Spark Connect on this machine, without anything to install or start first.

Only :mod:`lakegate.components` and the command line use it; to everything else the stack is just an address. From the
outside in:

- :mod:`~lakegate.local.stack`: up, down, status
- :mod:`~lakegate.local.servers`: the two servers' command lines and health checks
- :mod:`~lakegate.local.process`: background processes; :mod:`~lakegate.local.idle` stops unused ones
- :mod:`~lakegate.local.state`: what's running, and the file that stores it
- :mod:`~lakegate.local.stores`: what Spark needs to reach object stores
- :mod:`~lakegate.local.artifacts`: the JRE with its trusted certificates, Spark, and downloaded jars
- :mod:`~lakegate.local.archives`: archives of loaded classes

To add a server, add a :class:`~lakegate.local.servers.LocalServer` to ``SERVERS`` and its name to ``SERVICE_NAMES``.
"""

from __future__ import annotations

from lakegate.local.artifacts import prepare
from lakegate.local.stack import LocalStack
from lakegate.local.state import ServiceState, ServiceStatus, StackState

__all__ = ["LocalStack", "ServiceState", "ServiceStatus", "StackState", "prepare"]
