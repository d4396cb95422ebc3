"""What must be fast, measured against a baseline of the same run: ``make bench``."""
