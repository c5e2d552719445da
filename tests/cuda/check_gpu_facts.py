#!/usr/bin/env python3
"""driver_facts over the stub driver: check_gpu_facts.py PROGRAM STUB_FOLDER."""
import glob
import os
import re
import shutil
import subprocess
import sys

# What a line of each probe that begins so must go on with.
FACTS = {
    "device name": "Pith stub device",
    "captured replays that wrote, waited and went on": "all",
    "behind_mem_free cuMemFree": "(waits; behind it|ends when the stream goes on)",
    "blocked_by_wait cuMemFree of much": "WAITS for the held stream",
    "ipc its content, expected 5a5a5a5a5a5a5a5a": "5a5a5a5a5a5a5a5a",
    "under_free cuLaunchKernel": r"answers, [\d.]+ us$",
    "first_worker its second launch": "returns, ",
    "conditional ended": "yes",
    "copies copies on the device behind waits; one on a highest stream": "passes 16$",
    "memory ended": "yes",
    "mapped a descriptor of it": ".*success",
    "pools ended": "yes",
}


def run(program, stub, arguments):
    environment = dict(os.environ, LD_LIBRARY_PATH=stub)
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True,
                          timeout=600, check=False)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode, done.stdout.splitlines()


def missing_in(lines):
    """What is known of the probes and not said so."""
    for start, expected in FACTS.items():
        values = [line[len(start) + 2:] for line in lines if line.startswith(start + ": ")]
        if not values or not all(re.match(expected, value) for value in values):
            yield f"{start}: {values}, expected {expected}"


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
    probes = sorted({fact.split(" ")[0] for fact in FACTS})
    code, lines = run(program, stub, ["--seconds", "60", *probes])
    faults = list(missing_in(lines)) + ([f"exit status {code}"] if code else [])
    code, lines = run(program, stub, ["--seconds", "2", "own_crash"])
    crash = "own_crash ended: ended by signal 11"
    if code == 0 or not any(line.startswith(crash) for line in lines):
        faults.append(f"a crash counted as an end: {lines}")
    faults += faults_of_kernels()
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
