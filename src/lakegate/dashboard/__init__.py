"""The dashboard. Its read model returns what each page shows as plain values, from journal, commits and manifests.

:func:`lakegate.dashboard.model.open_read_model` opens the read model. Each page has a module of functions and the
values they return: :mod:`~lakegate.dashboard.overview`, :mod:`~lakegate.dashboard.branches`,
:mod:`~lakegate.dashboard.runs`, :mod:`~lakegate.dashboard.tables` and :mod:`~lakegate.dashboard.history`. None of them
imports Streamlit, starts a server or queries an engine.

These functions take the read model first and share their other parameters. ``run_id`` is a run id or a unique prefix of
one; ``search`` keeps what contains this text, in any case; ``examples`` is the maximum number of failing rows per
check; ``limit`` is the page size, and ``cursor`` the ``next`` of the previous page. They raise ``InputError`` for
malformed or damaged input, ``NotFoundError`` for what doesn't exist (any more), and ``RetryableError`` if the journal
or the catalog can't be reached.

The pages themselves are in ``ui/`` (extra ``lakegate[ui]``).
"""
