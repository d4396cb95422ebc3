"""The journal room: what runs intended and how they ended, who works on them, and which source files they claimed.

Three implementations of :class:`lakegate.protocols.Journal` pass one contract suite: :mod:`~lakegate.journal.sql` over
SQLite (:mod:`~lakegate.journal.database`) and over Postgres (:mod:`~lakegate.journal.postgres`), and
:mod:`~lakegate.journal.memory` for unit tests. What a claim may take (:mod:`~lakegate.journal.claims`) and what the
catalog's history tells (:mod:`~lakegate.journal.history`) are pure functions that all share. Another database is a
subclass of :class:`~lakegate.journal.database.Database`, picked in :mod:`~lakegate.journal.opening`; a change of the
tables is a module in ``migrations/versions``, and one entry in :data:`lakegate.journal.schema.REVISIONS`.
"""
