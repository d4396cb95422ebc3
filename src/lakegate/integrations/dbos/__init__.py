"""The same run as a durable workflow of DBOS: ``pip install 'lakegate[dbos]'``.

``python -m lakegate.integrations.dbos`` is the whole program. In an application of your own, ``workflows.wap`` is a
workflow like any other, and ``queues`` puts it on queues and schedules.

=================  ==========================================================
``workflows``      the workflow and its steps
``queues``         queues, de-duplication, the schedule
``configuration``  ``dbos-config.yaml`` and variables → DBOS's configuration
``program``        launching, waiting, backfills, stopping
=================  ==========================================================
"""
