"""The laboratory's network namespaces by name: pith-netlab-<pid of the owner>-<number>-<host>."""
import os
import re
import shutil
import signal
import subprocess

FOLDER = "/run/netns"
PREFIX = "pith-netlab"
OURS = re.compile(PREFIX + r"-(\d+)-\d+-\w+")


class LabError(Exception):
    """The laboratory could not be built or changed."""


def run(*arguments):
    # A signal before the command has a parent that knows of it would leave behind what it makes.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if done.returncode != 0:
        raise LabError(f"{' '.join(arguments)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def namespaces():
    try:
        return sorted(os.listdir(FOLDER))
    except FileNotFoundError:
        return []


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def remove_namespace(name):
    """Ends what runs in it first: its processes would keep it alive without a name."""
    if name not in namespaces():
        return
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    # Another sweep may have been faster.
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


def sweep():
    """Removes what laboratories left whose owner is gone; returns the names."""
    left = [name for name in namespaces()
            if (match := OURS.fullmatch(name)) and not is_alive(int(match[1]))]
    for name in left:
        remove_namespace(name)
    return left


def unavailable(link="switch"):
    """Why no laboratory can be built here, in one line; None where it can."""
    missing = [tool for tool in ("ip", "tc", "unshare") if not shutil.which(tool)]
    if missing:
        return f"network namespaces need {', '.join(missing)} (packages iproute2, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if link == "switch":
        try:
            os.close(os.open("/dev/net/tun", os.O_RDWR))
        except OSError as error:
            return f"the switch needs /dev/net/tun: {error.strerror}"
    probe = f"{PREFIX}-{os.getpid()}-0-probe"
    try:
        run("ip", "netns", "add", probe)
        run("ip", "-n", probe, "link", "add", "probe0", "type", "veth",
            "peer", "name", "probe1")
        return lacks_of_kernel(probe) if link == "veth" else None
    except LabError as error:
        return f"network namespaces are refused here: {error}"
    finally:
        remove_namespace(probe)


def lacks_of_kernel(probe):
    """What a veth network needs beside namespaces: modules that not every kernel has."""
    try:
        run("ip", "-n", probe, "link", "add", "br0", "type", "bridge")
        run("tc", "-n", probe, "qdisc", "add", "dev", "probe0", "root", "tbf", "rate", "1mbit",
            "burst", "128kb", "limit", "1mb")
    except LabError as error:
        return f"a veth network needs the kernel's bridge and token bucket: {error}"
    return None
