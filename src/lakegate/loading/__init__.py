"""Find new and historical files and ingest them in chunks, with limited retries. Uses the lake's public API."""
