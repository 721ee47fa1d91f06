"""The kit for a machine with a GPU: ``build`` writes its folder, ``check`` runs on that machine."""
