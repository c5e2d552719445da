"""A laboratory of hosts: network namespaces on one shaped network, removed whatever happens.

    with Lab(hosts=3, rate=100e6, delay=0.005) as lab:
        lab[0].start(["ping", "-c1", lab[1].address])
        lab.set_rate(10e6)

Two kinds of network. `switch`: a user-space switch (switch.cpp) with rate, delay, jitter and loss.
`veth`: the kernel's bridge and token buckets, for rates only, with no process in the way. Rates are
bits per second, times seconds; None for a host means all of them. Everything changes live.

Names are pith-netlab-<pid>-<number>-<host>, so several laboratories can be up at once and one whose
owner was killed is removed by the next. Addresses are the same in all of them and known nowhere
else. By hand: `python3 lab.py --help`.
"""
import argparse
import ctypes
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading

from namespaces import PREFIX, LabError, namespaces, remove_namespace, run, sweep, unavailable

PATIENCE_S = 10

# A token bucket smaller than a segmented packet that is already queued (64 KiB and headers) never
# has tokens enough for it, and the link hangs after a live change.
BURST_BYTES_MIN = 128 * 1024
QUEUE_BYTES = 1024 * 1024

HAS_IPV6 = os.path.exists("/proc/net/if_inet6")

numbers = itertools.count()
libc = ctypes.CDLL(None, use_errno=True)


class Signals:
    """Makes SIGTERM unwind the stack as SIGINT does, so that `with` removes the laboratory."""
    depth = 0
    before = None

    @classmethod
    def take(cls):
        if threading.current_thread() is not threading.main_thread():
            return
        cls.depth += 1
        if cls.depth == 1:
            cls.before = signal.signal(signal.SIGTERM, cls.end)

    @classmethod
    def give_back(cls):
        if threading.current_thread() is not threading.main_thread():
            return
        cls.depth -= 1
        if cls.depth == 0:
            signal.signal(signal.SIGTERM, cls.before)

    @staticmethod
    def end(number, _frame):
        raise SystemExit(128 + number)


def end_with_parent():
    """In a child before exec: the parent may be killed, and must not leave it behind."""
    pr_set_pdeathsig = 1
    libc.prctl(pr_set_pdeathsig, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# --- hosts ----------------------------------------------------------------------------------------


class Host:
    """A network namespace with an interface eth0 on the laboratory's network."""

    def __init__(self, lab, number):
        self.lab = lab
        self.number = number
        self.name = f"host{number}"
        self.namespace = f"{lab.prefix}-{self.name}"
        self.address = f"10.77.0.{number + 1}"
        self.address6 = f"fd77::{number + 1:x}"

    def ip(self, *arguments):
        return run("ip", "-n", self.namespace, *arguments)

    def command(self, arguments, name=None):
        """`arguments` as run on this host, with a host name of its own, or `name`.

        Processes, /dev/shm and System V memory are those of the machine: who needs ranks to be
        apart must forbid shared memory."""
        named = 'echo "$0" > /proc/sys/kernel/hostname 2> /dev/null; exec "$@"'
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", named,
                name or self.name, *map(str, arguments)]

    def start(self, arguments, environment=None, name=None, **options):
        """A process here, which ends with the laboratory at the latest."""
        process = subprocess.Popen(self.command(arguments, name), preexec_fn=end_with_parent,
                                   env={**os.environ, **(environment or {})}, **options)
        self.lab.processes.append(process)
        return process

    def run(self, arguments, timeout=60, **options):
        """The standard output of a process that must succeed."""
        process = self.start(arguments, stdout=subprocess.PIPE, text=True, **options)
        output, _ = process.communicate(timeout=timeout)
        if process.returncode != 0:
            raise LabError(f"{self.name}: {arguments}: status {process.returncode}")
        return output

    def sent_bytes(self, device):
        links = json.loads(self.ip("-j", "-s", "link", "show", device))
        return links[0]["stats64"]["tx"]["bytes"]

    def configure(self, ipv4, ipv6, congestion):
        self.ip("link", "set", "lo", "up")
        if ipv4:
            self.ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        if ipv6 and HAS_IPV6:
            # Without duplicate detection an address can be used at once.
            self.ip("addr", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        self.ip("link", "set", "eth0", "up")
        if ipv4 and congestion:
            self.ip("route", "replace", "10.77.0.0/24", "dev", "eth0", "src", self.address,
                    "congctl", congestion)

    def add_dead_end(self, name, address):
        """A second interface that is up and leads nowhere, as a container's bridge does."""
        self.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-end")
        self.ip("addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        for end in (name, f"{name}-end"):
            self.ip("link", "set", end, "up")


# --- networks -------------------------------------------------------------------------------------


def every(which, count):
    return range(count) if which is None else (which,)


class SwitchNetwork:
    """All hosts on a process of switch.cpp."""

    def __init__(self, lab, mtu, offload, seed):
        self.lab = lab
        options = ["--mtu", str(mtu), "--seed", str(seed)] + ([] if offload else ["--no-offload"])
        self.process = subprocess.Popen(
            [program("netlab_switch"), *options, *(host.namespace for host in lab)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
        lab.processes.append(self.process)
        if self.answer() != "ready":
            raise LabError("the switch did not start")

    def answer(self):
        if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
            raise LabError("the switch does not answer")
        return self.process.stdout.readline().strip()

    def tell(self, *words):
        self.process.stdin.write(" ".join("*" if word is None else str(word) for word in words))
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.answer()
        if answer.startswith("error") or not answer:
            raise LabError(f"the switch says '{answer}'")
        return answer

    def set_rate(self, rate, host):
        self.tell("rate", host, rate)

    def set_state(self, host, state):
        self.tell("port", host, state)

    def sent_bytes(self, host):
        return json.loads(self.tell("stats"))["sent_bytes"][host]


class VethNetwork:
    """All hosts on a kernel bridge in a namespace of its own, with a token bucket at both ends of
    every cable."""

    def __init__(self, lab, mtu):
        self.lab = lab
        self.hub = f"{lab.prefix}-hub"
        run("ip", "netns", "add", self.hub)
        run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "br0", "up")
        for host in lab:
            port = f"port{host.number}"
            run("ip", "-n", self.hub, "link", "add", port, "mtu", str(mtu), "type", "veth",
                "peer", "name", "eth0", "mtu", str(mtu), "netns", host.namespace)
            run("ip", "-n", self.hub, "link", "set", port, "master", "br0", "up")

    def set_rate(self, rate, host):
        for number in every(host, len(self.lab)):
            self.shape(self.lab[number].namespace, "eth0", rate)
            self.shape(self.hub, f"port{number}", rate)

    @staticmethod
    def shape(namespace, device, rate):
        at = ("dev", device, "root")
        if rate == 0:
            if "tbf" in run("tc", "-n", namespace, "qdisc", "show", *at):
                run("tc", "-n", namespace, "qdisc", "del", *at)
            return
        burst = max(BURST_BYTES_MIN, int(rate / 8 * 0.001))
        run("tc", "-n", namespace, "qdisc", "replace", *at, "tbf", "rate", f"{int(rate)}bit",
            "burst", str(burst), "limit", str(QUEUE_BYTES))

    def set_state(self, host, state):
        port = ("ip", "-n", self.hub, "link", "set", f"port{host}")
        # Off the bridge all is lost and nobody is told; down, the host loses its carrier.
        run(*port, *(["master", "br0"] if state == "up" else ["nomaster"]))
        run(*port, "down" if state == "unplugged" else "up")

    def sent_bytes(self, host):
        return self.lab[host].sent_bytes("eth0")


def program(name):
    """One of our own, as the build left it."""
    folder = os.environ.get("PITH_BIN") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "bin")
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        raise LabError(f"{path} is not there: build it, or set PITH_BIN to the folder it is in")
    return path


# --- the laboratory -------------------------------------------------------------------------------


class Lab:
    """See the top of this file. `offload=False` cuts TCP into packets before the switch, so that
    loss strikes packets and not frames of up to 64 KiB; `seed` is that of loss and jitter;
    `prepare(host)` is called before a host gets its eth0; `congestion` is TCP's control over IPv4,
    None the kernel's default."""

    def __init__(self, hosts, link="switch", rate=0, delay=0, mtu=1500, offload=True, seed=1,
                 ipv4=True, ipv6=True, prepare=None, congestion=None):
        if link not in ("switch", "veth"):
            raise ValueError(f"link is '{link}', expected switch or veth")
        self.prefix = f"{PREFIX}-{os.getpid()}-{next(numbers)}"
        self.hosts = [Host(self, number) for number in range(hosts)]
        self.processes = []
        self.network = None
        self.plan = (link, rate, delay, mtu, offload, seed, ipv4, ipv6, prepare, congestion)

    def __getitem__(self, number):
        return self.hosts[number]

    def __len__(self):
        return len(self.hosts)

    def __enter__(self):
        sweep()
        self.remove()  # process ids return, and so might our names
        Signals.take()
        try:
            self.build(*self.plan)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def build(self, link, rate, delay, mtu, offload, seed, ipv4, ipv6, prepare, congestion):
        for host in self.hosts:
            run("ip", "netns", "add", host.namespace)
            if prepare:
                prepare(host)
        if link == "veth":
            self.network = VethNetwork(self, mtu)
        else:
            self.network = SwitchNetwork(self, mtu, offload, seed)
        for host in self.hosts:
            host.configure(ipv4, ipv6, congestion)
        if rate:
            self.set_rate(rate)
        if delay:
            self.set_delay(delay)

    def __exit__(self, *_):
        # A second signal must not interrupt the removal.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        try:
            self.remove()
        finally:
            Signals.give_back()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def remove(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    close_quietly(pipe)
        for name in namespaces():
            if name.startswith(self.prefix + "-"):
                remove_namespace(name)

    def set_rate(self, rate, host=None):
        """Both directions of a host's cable; 0: no limit."""
        self.network.set_rate(rate, host)

    def set_delay(self, delay, a=None, b=None):
        """One way, in both directions between two hosts."""
        self.both_ways("delay", int(delay * 1e9), a, b)

    def set_jitter(self, jitter, a=None, b=None):
        """How much the delay varies, up and down."""
        self.both_ways("jitter", int(jitter * 1e9), a, b)

    def set_loss(self, probability, a=None, b=None):
        self.both_ways("loss", probability, a, b)

    def both_ways(self, what, value, a, b):
        if not isinstance(self.network, SwitchNetwork):
            raise LabError(f"a veth network has no {what}: use link='switch'")
        self.network.tell(what, a, b, value)
        self.network.tell(what, b, a, value)

    def silence(self, host):
        """The host vanishes: nothing comes from it or reaches it, and nobody is told."""
        self.network.set_state(host, "silent")

    def unplug(self, host):
        """The host's cable is cut: it loses its carrier, the others see nothing of it."""
        self.network.set_state(host, "unplugged")

    def heal(self, host):
        self.network.set_state(host, "up")

    def sent_bytes(self, host):
        """What the host has put on the network."""
        return self.network.sent_bytes(host)


def close_quietly(pipe):
    try:
        pipe.close()
    except OSError:
        pass  # what was still buffered for a process that has ended


def main():
    parser = argparse.ArgumentParser(description="Runs a command on every host of a laboratory; "
                                     "in it {rank}, {address} and {root} (host 0's) are replaced.")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--link", choices=("switch", "veth"), default="switch")
    parser.add_argument("--rate", type=float, default=0, help="bits per second; 0: no limit")
    parser.add_argument("--delay", type=float, default=0, help="seconds, one way")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    reason = unavailable(options.link)
    if reason:
        sys.exit(f"lab: {reason}")
    with Lab(options.hosts, options.link, options.rate, options.delay) as lab:
        started = [host.start([word.replace("{rank}", str(host.number))
                               .replace("{address}", host.address)
                               .replace("{root}", lab[0].address) for word in options.command])
                   for host in lab]
        sys.exit(max(abs(process.wait()) for process in started))


if __name__ == "__main__":
    main()
