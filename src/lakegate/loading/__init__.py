"""New and historical files: finding them, taking them in by chunks, and not for ever. Uses the lake as users do."""
