"""The parts of the Python API that :class:`lakegate.Lake` has as attributes, a module each."""
