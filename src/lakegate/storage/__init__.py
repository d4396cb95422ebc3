"""Object stores: the connection to each, and its errors in our words; for source files and for the warehouse alike."""
