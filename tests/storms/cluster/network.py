"""A network of namespaces of this machine: each node has its own address, and can be cut off from others.

It needs root and the program `ip`. Without them nodes share the loopback address, and no fault of the network is possible.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress

# A range for tests between networks (RFC 2544): no machine has such an address.
_PREFIX = "198.18"


def reason_to_skip() -> str:
    """Return why faults of the network cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs the program ip"
    tried = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    if tried.returncode:
        return f"no namespaces: {tried.stderr.strip()}"
    return ""


class Network:
    """A bridge of this machine and one namespace per node, each connected to the bridge.

    Processes of the machine itself reach every node through the bridge.

    Parameters
    ----------
    number : 0 to 255; networks with different numbers can exist at once
    n_nodes : number of namespaces
    """

    def __init__(self, number: int, n_nodes: int) -> None:
        self.number, self.n_nodes = number, n_nodes
        self.bridge = f"storm{number}"
        self.hosts = [f"{_PREFIX}.{number}.{at + 1}" for at in range(n_nodes)]

    def create(self) -> None:
        """Create it, without what an interrupted run has left of it."""
        self.remove()
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{_PREFIX}.{self.number}.254/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for at, host in enumerate(self.hosts):
            space, outer = self._space(at), self._link(at)
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "inner", "netns", space)
            _ip("link", "set", outer, "master", self.bridge, "up")
            _ip("-n", space, "addr", "add", f"{host}/24", "dev", "inner")
            _ip("-n", space, "link", "set", "inner", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Remove it, and kill what runs in its namespaces."""
        for at in range(self.n_nodes):
            listed = subprocess.run(
                ["ip", "netns", "pids", self._space(at)], capture_output=True, text=True
            )
            for pid in listed.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("link", "del", self._link(at), is_needed=False)
            _ip("netns", "del", self._space(at), is_needed=False)
        _ip("link", "del", self.bridge, is_needed=False)

    def prefix(self, at: int) -> list[str]:
        """Return the beginning of a command that runs in the namespace of a node."""
        return ["ip", "netns", "exec", self._space(at)]

    def isolate(self, at: int) -> None:
        """Cut a node off from everything."""
        _ip("link", "set", self._link(at), "down")

    def rejoin(self, at: int) -> None:
        """Connect an isolated node again."""
        _ip("link", "set", self._link(at), "up")

    def separate(self, at: int, others: list[int]) -> None:
        """Drop all packets between a node and others; processes of the machine still reach all of them."""
        self._between("add", at, others)

    def unite(self, at: int, others: list[int]) -> None:
        """Stop dropping packets between a node and others."""
        self._between("del", at, others)

    def _between(self, verb: str, at: int, others: list[int]) -> None:
        for other in others:
            for here, there in ((at, other), (other, at)):
                route = ("route", verb, "blackhole", f"{self.hosts[there]}/32")
                _ip("-n", self._space(here), *route)

    def _space(self, at: int) -> str:
        return f"{self.bridge}-{at}"

    def _link(self, at: int) -> str:
        return f"{self.bridge}n{at}"


def free_number() -> int:
    """Return the number of a network that does not exist on this machine."""
    present = _ip("-o", "link", "show", "type", "bridge")
    return next(number for number in range(256) if f" storm{number}:" not in present)


def _ip(*words: str, is_needed: bool = True) -> str:
    ran = subprocess.run(["ip", *words], capture_output=True, text=True)
    if is_needed and ran.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {ran.stderr.strip()}")
    return ran.stdout
