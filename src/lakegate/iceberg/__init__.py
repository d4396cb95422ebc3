"""Iceberg tables without a JVM: read, compare and change their metadata, and reach their files."""
