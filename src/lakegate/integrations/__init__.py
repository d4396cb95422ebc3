"""The steps of a run under an orchestrator: one module each, loaded by name only.

An orchestrator adds no logic of write–audit–publish: it calls ``Lake.write``, ``Lake.audit_run`` and
``Lake.publish_run``, each idempotent by run id, and ``Lake.cancel_run`` when it gives up.
"""
