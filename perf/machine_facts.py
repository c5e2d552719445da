"""Whose times these are: processor, memory, kernel, clock governor, as the system tells them."""
import os
import pathlib
import platform
import re
import subprocess

PROCESSOR = {"cpu": "Model name", "family": "CPU family", "model": "Model", "l2": "L2 cache",
             "l3": "L3 cache", "hypervisor": "Hypervisor vendor"}
LAYOUT = {"architecture": "Architecture", "vendor": "Vendor ID", "sockets": "Socket(s)",
          "threads_per_core": "Thread(s) per core", "numa_nodes": "NUMA node(s)",
          "mhz_max": "CPU max MHz", "l1d": "L1d cache"}


def output_of(*command):
    """What a command prints, in English; nothing where it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30,
                              env={**os.environ, "LC_ALL": "C"}).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def lscpu_fields(text, names):
    """Of lscpu's lines those in `names` (our name: lscpu's name)."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {ours: fields[theirs].strip() for ours, theirs in names.items() if theirs in fields}


def processor():
    about = {"cores": os.cpu_count(), "system": " ".join(os.uname()[index] for index in (0, 2, 4)),
             "cpu": "unknown"}
    return about | lscpu_fields(output_of("lscpu"), PROCESSOR)


def text_of(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def memory_gib():
    found = re.search(r"^MemTotal: *(\d+) kB$", text_of("/proc/meminfo"), re.MULTILINE)
    return round(int(found[1]) / 2**20, 1) if found else None


def governors():
    """The cores' clock governors, each once; empty where the kernel does not govern clocks."""
    files = pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return sorted({text_of(file).strip() for file in files})


def distribution():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def commit_of(folder):
    """The commit of a checkout, with " and changes" where files differ from it; "unknown"
    elsewhere."""
    commit = output_of("git", "-C", str(folder), "rev-parse", "HEAD").strip()
    if not commit:
        return "unknown"
    changed = output_of("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return commit + (" and changes" if changed.strip() else "")


def machine():
    return (processor() | lscpu_fields(output_of("lscpu"), LAYOUT)
            | {"memory_gib": memory_gib(), "distribution": distribution(),
               "governors": governors(), "python": platform.python_version()})
