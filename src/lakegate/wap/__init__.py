"""Write–audit–publish: ``plan → stage → audit → publish | discard``. ARCHITECTURE.md shows the path of a batch.

Every step takes and returns frozen values that survive JSON, and is idempotent by run id, so an orchestrator only
sequences steps. Nothing here depends on a technology: implementations come in through
:class:`~lakegate.context.Context`.
"""
