"""The commands of ``lakegate admin``, one module each."""
