"""The dashboard. Its read model is plain Python: what each page shows, as values, from journal, commits and manifests.

:func:`lakegate.dashboard.model.open_read_model` opens it. Each page has a module with its functions and the values they
return: :mod:`~lakegate.dashboard.overview`, :mod:`~lakegate.dashboard.branches`, :mod:`~lakegate.dashboard.runs`,
:mod:`~lakegate.dashboard.tables`, :mod:`~lakegate.dashboard.history` and :mod:`~lakegate.dashboard.files`. None of them
imports Streamlit, starts a server or asks an engine. The pages themselves are in ``ui/`` (extra ``lakegate[ui]``).
"""
