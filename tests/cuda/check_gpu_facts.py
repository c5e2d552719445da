#!/usr/bin/env python3
"""driver_facts over the stub driver: check_gpu_facts.py PROGRAM STUB_FOLDER."""
import ctypes.util
import glob
import os
import re
import shutil
import subprocess
import sys

# What a line that begins so must go on with.
FACTS = {
    "device name": "Pith stub device",
    "captured replays that wrote, waited and went on": "all",
    "captured pinned memory in another's capture": ".*CAPTURE_UNSUPPORTED",
    "captured pinned memory in another's capture, relaxed": r"[\d.]+ us$",
    "behind_mem_free cuMemFree": "(waits; behind it|ends when the stream goes on)",
    "behind_mem_free a kernel elsewhere, done": r"[\d.]+ us$",
    "behind_stream_create cuStreamCreate": "does not wait",
    "blocked_by_wait cuMemAlloc of much": "returns",
    "blocked_by_wait cuMemFree of much": "WAITS for the held stream",
    "blocked_by_kernel cuMemFreeHost": "WAITS for the held stream",
    "blocked_by_kernel cuStreamDestroy of an idle one": "returns",
    "queues 64 usual streams wait; of 8 usual ones pass": "writes of 8, kernels of 8, copies of 8$",
    "queues[connections=1] 1 usual streams wait; of 8 usual ones pass":
        "writes of 0, kernels of 0, copies of 0 STUCK$",
    "served resident kernels at once": "(2 of 2|4 of 4|8 of 8|16 of 16)",
    "trips host, wait, kernel, host": "median",
    "ipc its content, expected 5a5a5a5a5a5a5a5a": "5a5a5a5a5a5a5a5a",
    "ipc what the other one's kernel has written": "0000000000001234",
    "beside_kernel kernel to host": "median",
    "pointers plain memory, before cuInit": ".*NOT_INITIALIZED",
    "pointers device memory, no context current": "",
    "streams handle 2 (per thread), its context current": "cuStreamGetCtx success; a write success",
    "start loading Pith's kernels": r"\d+ us$",
    "costs cuLaunchKernel": "median",
    "under_free cuLaunchKernel": r"answers, [\d.]+ us$",
    "first_worker its second launch": "returns, ",
    "lazy_loading ended": "yes",
    "local_memory ended": "yes",
    "conditional matters for": "calls captured",
    "conditional ended": "yes",
    "copies copies on the device behind waits; one on a highest stream": "passes 16$",
    "priorities 64 -1 streams wait; of 8 highest ones pass":
        "writes of 8, kernels of 8, copies of 8$",
    "memory cuMemAlloc's memory, type": "2$",
    "memory cuMemAlloc's memory, cuIpcGetMemHandle": "success$",
    "memory ended": "yes",
    "mapped its context": "0",
    "mapped cuMemGetAddressRange in the second mapping": ".*begins at page 1, 2 pages",
    "mapped access before cuMemSetAccess": "none",
    "mapped access after it": "read and write",
    "mapped a descriptor of it": ".*success",
    "mapped cuMemAlloc's counts as mapped by hand": "no",
    "pools ended": "yes",
    "own_hang before": "said",
    "own_hang ended": "HANGS in: waiting for ever",
    "own_crash ended": "ended by signal 11",
}
QUICK = ["device", "captured", "behind_mem_free", "blocked_by_wait", "ipc", "under_free",
         "first_worker", "conditional", "copies", "memory", "mapped", "pools", "own_crash"]


def run(program, stub, arguments, **variables):
    environment = dict(os.environ, LD_LIBRARY_PATH=stub, **variables)
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True,
                          timeout=600, check=False)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode, done.stdout.splitlines()


def missing_in(lines, names):
    """What is known of these probes and not said so."""
    for start, expected in FACTS.items():
        if names and not start.startswith(tuple(names)):
            continue
        values = [line[len(start) + 2:] for line in lines if line.startswith(start + ": ")]
        if not values or not all(re.match(expected, value) for value in values):
            yield f"{start}: {values}, expected {expected}"


def faults_of_shared_queues(program, stub):
    """With one hardware queue for all streams of a priority a copy waits behind the first."""
    _, lines = run(program, stub, ["--seconds", "60", "copies"], CUDA_DEVICE_MAX_CONNECTIONS="1")
    line = "copies copies to the device behind waits; one on a usual stream: to the device STUCK " \
           "behind 1"
    return [] if line in lines else [f"not said: {line}"]


def faults_of_holding(program, stub):
    """A context is held for the parent alone, and no longer than it is asked to."""
    environment = dict(os.environ, LD_LIBRARY_PATH=stub)
    with subprocess.Popen([program, "hold", str(os.getpid())], env=environment, text=True,
                          stdout=subprocess.PIPE) as held:
        said = held.stdout.readline()
        lives = held.poll() is None
        held.terminate()
    faults = [] if lives and "holds a context" in said else [f"hold: {said!r}, lives: {lives}"]
    code, lines = run(program, stub, ["hold", "1"])
    return faults + ([] if (code, lines) == (0, []) else [f"held for another: {lines}"])


def faults_of_kernels():
    """The probes' own, which the stub does not look at; where the toolkit is."""
    ptxas = shutil.which("ptxas", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/gpu")
    for path in sorted(glob.glob(os.path.join(folder, "*.cpp"))) if ptxas else []:
        with open(path, encoding="utf-8") as file:
            texts = re.findall(r'R"\((\s*\.version.*?)\)"', file.read(), re.S)
        for text in texts:
            done = subprocess.run([ptxas, "-arch=sm_90", "-o", os.devnull, "/dev/stdin"],
                                  input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"{os.path.basename(path)}: {done.stderr}"


def main():
    program, stub = sys.argv[1:]
    full = os.environ.get("PITH_TEST_FULL")
    probes = sorted({re.split(r"[\[ ]", fact)[0] for fact in FACTS}) if full else QUICK
    sane = [probe for probe in probes if not probe.startswith("own_")]
    code, lines = run(program, stub, ["--seconds", "60", *sane])
    faults = list(missing_in(lines, sane)) + ([f"exit status {code}"] if code else [])
    own = [probe for probe in probes if probe.startswith("own_")]
    code, lines = run(program, stub, ["--seconds", "2", *own])
    faults += list(missing_in(lines, own)) + ([] if code else ["a crash counted as an end"])
    faults += faults_of_shared_queues(program, stub) + faults_of_holding(program, stub)
    faults += faults_of_kernels()
    if not ctypes.util.find_library("cuda"):
        code, lines = run(program, "/nonexistent", ["device"])
        if code == 0 or not any("libcuda" in line for line in lines):
            faults.append("without a driver: nothing said")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
