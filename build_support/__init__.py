"""The build of the Python package around the native library."""
