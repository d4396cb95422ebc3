"""Secrets by reference, and the access tokens obtained with them.

Settings never contain a secret, only a reference to it: a variable, a file, or AWS Secrets Manager. All parts of
lakegate read secrets through ``secret.py``. No error shows a value.

To add a kind of reference: its scheme and form in ``model/secrets.py``, and a function that reads it in ``secret.py``
(``_READERS``).
"""
