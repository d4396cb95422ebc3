"""Tables of Iceberg without a JVM: their metadata read, compared and changed, and their files."""
