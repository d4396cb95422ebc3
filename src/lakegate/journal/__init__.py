"""The journal: runs and how they ended, their leases, and the source files that they claimed."""
