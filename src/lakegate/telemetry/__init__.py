"""What lakegate reports to monitoring systems: OpenLineage events, Prometheus metrics, OpenTelemetry spans and metrics.

None of it holds a row of data or a secret. Each module needs an extra, and is loaded when it's asked for.
"""
