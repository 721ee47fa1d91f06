"""How the Python package is built around the native library."""
