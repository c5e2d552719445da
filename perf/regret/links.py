"""The links of the grid, and ranks on them.

    shm        shared memory, buffers of pithMemAlloc
    private    shared memory, the caller's own buffers
    loopback   TCP of one host
    1g+5ms     TCP between hosts of a laboratory (tests/netlab): Gbit/s either way, and a delay one
               way; without a delay the kernel's token buckets, else the laboratory's switch
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "netlab"))
from lab import Lab, end_with_parent, program  # noqa: E402
from namespaces import unavailable  # noqa: E402

SHAPED = re.compile(r"(\d+(?:\.\d+)?)g(?:\+(\d+(?:\.\d+)?)ms)?")
# Beside every algorithm: the library's choice with another setting, where one may matter.
LEARNING = ("learn=0",)
TCP_SETTINGS = LEARNING + ("streams=1", "streams=2", "chunk=131072", "chunk=2097152")
PRIVATE_SETTINGS = LEARNING + ("copy_bytes=65536", "chunk=16384", "chunk=262144")
# Seconds of a small message beside the delay: two processors that handle packets.
PACKET_S = 20e-6
ROOT_PORT = 20000
GRACE_S = 60


class Failed(Exception):
    """A group of ranks that did not end well; the text says why."""


@dataclasses.dataclass(frozen=True)
class Link:
    name: str
    transport: str
    memory: str = "private"
    settings: tuple = ()
    rate: float = 0  # bits per second; 0: no laboratory
    delay: float = 0  # seconds, one way

    @property
    def kind(self):
        return "switch" if self.delay else "veth"

    def lacks(self):
        """Why it cannot be laid here, or None."""
        return unavailable(self.kind) if self.rate else None

    def flags(self):
        flags = ["--transport", self.transport, "--memory", self.memory]
        if self.settings:
            flags += ["--settings", ",".join(self.settings)]
        if self.rate:
            flags += ["--link", f"{self.delay + PACKET_S:g},{8 / self.rate:g}"]
        return flags


LOCAL = {"shm": Link("shm", "shm", "registered", LEARNING),
         "private": Link("private", "shm", "private", PRIVATE_SETTINGS),
         "loopback": Link("loopback", "tcp", "private", TCP_SETTINGS)}


def parse_link(text):
    if text in LOCAL:
        return LOCAL[text]
    match = SHAPED.fullmatch(text)
    if not match or float(match[1]) == 0:
        raise ValueError(f"'{text}' is no link, expected {', '.join(LOCAL)} or a form of 1g, "
                         "0.1g+20ms")
    return Link(text, "tcp", "private", TCP_SETTINGS, float(match[1]) * 1e9,
                float(match[2] or 0) / 1e3)


def clean_environment():
    return {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"


def finish(processes, limit):
    """Waits for all. The first that fails ends the others, as does the time; so nothing is left
    either where a signal ends the wait."""
    end = time.monotonic() + limit
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                break
            if time.monotonic() > end:
                raise Failed(f"no end within {limit:g} s")
            time.sleep(0.05)
    finally:
        # A rank that fails tells the others, which then say so too: the first word is its own.
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        texts = [process.communicate()[1] for process in processes]
    failed = [(process.returncode, text) for process, text in zip(processes, texts)
              if process.returncode not in (0, -signal.SIGKILL)]
    if failed:
        raise Failed(f"exit status {failed[0][0]}: {first_line(failed[0][1])}")
    if any(process.returncode for process in processes):
        raise Failed("a rank was killed")


@contextlib.contextmanager
def started_here(ranks, flags):
    process = subprocess.Popen([program("regret_bench"), "--ranks", str(ranks), *flags],
                               env=clean_environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
    yield [process]


@contextlib.contextmanager
def started_apart(link, ranks, flags):
    """Each rank on a host of its own."""
    with Lab(ranks, link=link.kind, rate=link.rate, delay=link.delay, ipv6=False) as lab:
        common = clean_environment() | {
            "PITH_IFNAME": "eth0", "PITH_SIZE": str(ranks), "PITH_TRANSPORT": "tcp",
            "PITH_ROOT": f"{lab[0].address}:{ROOT_PORT}", "PITH_SECRET": secrets.token_hex(16)}
        yield [host.start([program("regret_bench"), *flags],
                          {**common, "PITH_RANK": str(host.number)}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) for host in lab]


def cells_in(path, link):
    """What has been written, also by ranks that were ended in the middle of a line."""
    if not path.is_file():
        return []
    cells = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            cells.append({"link": link.name, **json.loads(line)})
    return cells


def run(link, ranks, flags, seconds, path):
    """Replays the cells on a link, which are then in the file `path`."""
    flags = [*link.flags(), "--seconds", f"{seconds:g}", "--out", str(path), *flags]
    started = started_apart(link, ranks, flags) if link.rate else started_here(ranks, flags)
    with started as processes:
        finish(processes, 2 * seconds + GRACE_S)
