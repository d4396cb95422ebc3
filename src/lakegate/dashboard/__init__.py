"""The dashboard. Its read model is plain Python: what each page shows, as values, from journal, commits and manifests.

:func:`lakegate.dashboard.model.open_read_model` opens it. Each page has a module with its functions and the values they
return: :mod:`~lakegate.dashboard.overview`, :mod:`~lakegate.dashboard.branches`, :mod:`~lakegate.dashboard.runs`,
:mod:`~lakegate.dashboard.tables`, :mod:`~lakegate.dashboard.history` and :mod:`~lakegate.dashboard.runs`. None of them
imports Streamlit, starts a server or asks an engine.

They take the read model first. Where they have them, ``ref`` is a branch, tag or commit hash; ``at`` a commit hash or
a time, by default now; ``run_id`` an id or a unique beginning of one; ``limit`` the most results to return, and
``cursor`` the ``next`` of the page before. They raise an ``InputError`` for what is malformed or damaged, a
``NotFoundError`` for what doesn't exist or isn't there any more, and a ``RetryableError`` when the journal or the
catalog can't be reached.

The pages themselves are in ``ui/`` (extra ``lakegate[ui]``).
"""
