"""Processes that run cases of tests/fuzz, tests/sweep and others: each way to end is reported."""

import os
import pickle
import time
from contextlib import closing
from multiprocessing.connection import Connection

import pytest
from process_runner import Crew, DiedError, Worker


def serve(channel: Connection) -> None:
    """Answer requests, some of which end the process."""
    while True:
        request = channel.recv()
        if request == "abort":
            print("last words", flush=True)
            os.abort()
        if request == "raise":
            raise ValueError("planted")
        if request == "close":
            channel.close()
        if request in ("sleep", "close"):
            time.sleep(100)
        channel.send((request, os.environ.get("PLANTED")))


def start() -> Worker:
    return Worker("test_process_runner:serve", environment={"PLANTED": "set"})


@pytest.mark.parametrize(
    ("asked", "kind", "status", "text"),
    [
        ("abort", "crash", -6, "the process ends with status -6: last words"),
        ("raise", "crash", 1, "ValueError: planted"),
        ("sleep", "hang", -9, "no result after 1 s"),
        ("close", "hang", -9, "no result after 1 s"),
    ],
)
def test_each_end_of_a_process_is_reported(asked: str, kind: str, status: int, text: str) -> None:
    with closing(start()) as worker:
        worker.send(1)
        assert worker.receive(60) == (1, "set")
        worker.send(asked)
        with pytest.raises(DiedError, match=text) as died:
            worker.receive(1 if kind == "hang" else 60)
        assert (died.value.kind, died.value.status, worker.status) == (kind, status, status)
        # A later message is lost without an error.
        worker.send(2)


def test_a_worker_that_does_not_start_leaves_no_file_open() -> None:
    start().close()  # the server starts
    before = os.listdir("/proc/self/fd")
    with pytest.raises((AttributeError, pickle.PicklingError)) as raised:
        Worker("test_process_runner:serve", lambda: None)
    # Its traceback keeps the objects.
    assert os.listdir("/proc/self/fd") == before, raised.value


def test_a_crew_does_all_jobs_and_replaces_workers_that_end() -> None:
    done: dict[object, str] = {}

    def ask(worker: Worker, job: object) -> bool:
        worker.send(job)
        try:
            worker.receive(60)
            done[job] = "right"
        except DiedError as died:
            done[job] = died.kind
        return False

    Crew(start, ask, lambda job: "", jobs_of_a_worker=3).work([1, "abort", 2, "raise", *range(3, 10)])
    assert done == {**dict.fromkeys(range(1, 10), "right"), "abort": "crash", "raise": "crash"}
