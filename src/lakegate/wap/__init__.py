"""The flow: ``plan → stage → audit → publish | discard``, as the way of a batch is drawn in ARCHITECTURE.md.

Every step takes and returns frozen values that survive JSON and is idempotent by run id, so an orchestrator only
sequences steps. Nothing here knows a technology: the context come in through :class:`~lakegate.wap.context.Context`.
"""
