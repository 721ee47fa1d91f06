"""What ``gpu_check.py`` does: runs parts, each in processes of its own, and keeps a report that is whole at any time.

It imports neither torch nor this backend, so that whatever these do to a process, the report survives.
"""
