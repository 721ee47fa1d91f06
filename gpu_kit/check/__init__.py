"""The program of ``gpu_check.py``: runs parts, each in separate processes, and keeps a report at any time.

It imports neither torch nor this backend, so that the report survives a crash in these.
"""
