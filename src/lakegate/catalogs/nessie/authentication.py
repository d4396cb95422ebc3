"""How Spark's own client of Nessie proves who it is.

The options are those of https://projectnessie.org/tools/client_config/, without ``nessie.`` before them.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.credentials.tokens import ClientCredentials, Token


def spark_authentication(token: Token | None) -> Mapping[str, str]:
    """Return the options of a Spark catalog for ``token``. They hold the secret: never log them.

    A client of OAuth 2 gets its own access tokens, for as long as the session lives. Any other token is handed over as
    it is now. Their names are such that Spark redacts them wherever it shows its settings (``spark.redaction.regex``).
    """
    if token is None:
        return {}
    if not isinstance(token, ClientCredentials):
        return {"authentication.type": "BEARER", "authentication.token": token.value()}
    options = {
        "authentication.type": "OAUTH2",
        "authentication.oauth2.token-endpoint": token.endpoint,
        "authentication.oauth2.client-id": token.client_id,
        "authentication.oauth2.client-secret": token.secret.value(),
    }
    return options if token.scope is None else {**options, "authentication.oauth2.client-scopes": token.scope}
