"""The function for AWS Lambda: files that land in a bucket are written, audited and published as events announce them.

Set ``lakegate.integrations.aws_lambda.handler`` as the function's handler. It is configured by ``LAKEGATE_*``
variables, or by a ``lakegate.toml`` next to the code. It needs no JVM: the package ``pyspark-client`` will do, and
Spark is reached by Spark Connect.
"""

from __future__ import annotations

from lakegate.integrations.aws_lambda.function import Context, handler

__all__ = ["Context", "handler"]
