"""Telemetry for monitoring systems: Prometheus metrics, and OpenTelemetry spans and metrics.

None of it contains rows of data or secrets. The modules that need an extra are loaded only on demand.
"""
