"""The journal room: what runs intended and how they ended.

Two implementations of :class:`lakegate.protocols.Journal` pass one contract suite: :mod:`~lakegate.journal.sql`
(SQLite by default) and :mod:`~lakegate.journal.memory` (unit tests). A new one is a module here, picked in
``lakegate.lake``.
"""
