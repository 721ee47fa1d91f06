"""torch.distributed over a network: two network namespaces, joined by a virtual cable, are two hosts to gloo."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from distributed_models import Gpt, losses, text

PROGRAM = Path(__file__).with_name("distributed_hosts_program.py")
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
SECONDS = 120


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def within(name: str) -> list[str]:
    return ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run"]


def host(rank: int, address: str) -> list[str]:
    # A namespace has no name of its own, by which torchrun would find the host of the store.
    return ["--local-addr", address, "--rdzv-conf", f"is_host={rank == 0}"]


class Hosts:
    """Two hosts with one cable."""

    def __init__(self) -> None:
        self.names = [f"opencl{os.getpid()}{letter}" for letter in "ab"]
        self.ends = [f"v{name[-8:]}" for name in self.names]

    def connect(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", name, "name", "cable")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            self.set_link(name, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def disconnect(self) -> None:
        # The cable goes with the first of its ends.
        commands = [["netns", "del", name] for name in self.names] + [["link", "del", self.ends[0]]]
        for command in commands:
            subprocess.run(["ip", *command], check=False, capture_output=True)

    def set_link(self, name: str, state: str) -> None:
        ip("-n", name, "link", "set", "cable", state)

    def start(self, case: str, folder: Path, *options: str) -> list[subprocess.Popen[bytes]]:
        """Start a case by torchrun on both hosts."""
        common = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", case]
        place = ["--rdzv-endpoint", f"{ADDRESSES[0]}:29400", "--monitor-interval", "0.1"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "cable", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return [
            subprocess.Popen(
                [*within(name), *common, *place, *host(rank, address), *options, str(PROGRAM), case, str(folder)],
                env=environment,
                stdout=(folder / f"output {rank}").open("w"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for rank, (name, address) in enumerate(zip(self.names, ADDRESSES, strict=True))
        ]

    def run(self, case: str, folder: Path, *options: str) -> None:
        """Run a case, which must succeed on both hosts."""
        with ended(self.start(case, folder, *options)) as processes:
            statuses = [process.wait(SECONDS) for process in processes]
        assert statuses == [0, 0], "\n".join((folder / f"output {rank}").read_text() for rank in range(2))


@contextmanager
def ended(processes: list[subprocess.Popen[bytes]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """At the end, kill processes and their children."""
    try:
        yield processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need ip (Debian: iproute2)")
    made = Hosts()
    try:
        made.connect()
    except subprocess.CalledProcessError as error:
        made.disconnect()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield made
    made.disconnect()


def wait_for(path: Path) -> None:
    until = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name} after {SECONDS} s"
        time.sleep(0.05)


def test_data_parallel_training_on_two_hosts_equals_training_on_one(hosts, tmp_path, device):
    hosts.run("trains", tmp_path)
    found, parameters = torch.load(tmp_path / "trained")
    model = Gpt().to(device)
    expected = losses(model, *(each.to(device) for each in text()))
    torch.testing.assert_close(found, expected.cpu(), rtol=1e-4, atol=1e-5)
    alone = {name: each.cpu() for name, each in model.state_dict().items()}
    torch.testing.assert_close(parameters, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_two_hosts_is_loaded_by_one(hosts, tmp_path, device):
    hosts.run("shards", tmp_path)
    model = Gpt().to(device)
    state = model.state_dict()
    dcp.load(state, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    expected = torch.load(tmp_path / "whole")
    torch.testing.assert_close({name: each.cpu() for name, each in state.items()}, expected, rtol=0, atol=0)


@pytest.mark.slow
def test_a_cut_link_raises_after_the_timeout_of_the_group_on_both_hosts(hosts, tmp_path):
    with ended(hosts.start("waits", tmp_path)):
        for rank in range(2):
            wait_for(tmp_path / f"started {rank}")
        hosts.set_link(hosts.names[1], "down")
        for rank in range(2):
            wait_for(tmp_path / f"raised {rank}")
    for rank in range(2):
        seconds, _, message = (tmp_path / f"raised {rank}").read_text().partition(" ")
        assert float(seconds) < 30, message


@pytest.mark.slow
def test_a_killed_process_is_started_again_on_both_hosts(hosts, tmp_path):
    hosts.run("restarts", tmp_path, "--max-restarts", "2")
    assert {(tmp_path / f"finished {rank}").read_text() for rank in range(2)} == {"24.0"}
