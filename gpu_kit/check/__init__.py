"""The program behind ``gpu_check.py``: runs parts, each in processes of its own, and keeps a report at any time.

It imports neither torch nor this backend, so that whatever these do to a process, the report survives.
"""
