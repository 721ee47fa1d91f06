"""The kit for a machine with a GPU: ``build`` writes the folder, ``check`` is what runs there."""
