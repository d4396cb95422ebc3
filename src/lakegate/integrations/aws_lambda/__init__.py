"""The function for AWS Lambda: writes, audits and publishes files as events announce them in a bucket.

Set ``lakegate.integrations.aws_lambda.handler`` as the function's handler, and configure it with ``LAKEGATE_*``
variables or a ``lakegate.toml`` next to the code. It needs no JVM: it uses Spark Connect, for which the package
``pyspark-client`` is enough.
"""

from __future__ import annotations

from lakegate.integrations.aws_lambda.function import LambdaContext, handler

__all__ = ["LambdaContext", "handler"]
