"""Runs as durable DBOS workflows: ``pip install 'lakegate[dbos]'``.

``python -m lakegate.integrations.dbos`` is a complete program. In your own application, use ``workflows.wap`` like any
other workflow, and ``queues`` to enqueue and schedule it.

=================  ==========================================================
``workflows``      the workflow and its steps
``queues``         queues, deduplication, schedules
``configuration``  ``dbos-config.yaml`` and variables → DBOS's configuration
``program``        launching, waiting, backfills, stopping
=================  ==========================================================
"""
