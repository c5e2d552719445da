#!/usr/bin/env python3
"""Which way of running steps (PITH_CUDA_STEPS) is the safe one: steps.py FACTS_FILE.

Prints both, the safe one first, and then what speaks against each by what driver_facts has said.
"""
import re
import sys

HANGS, LIMITS = 10, 1  # a call would never end; something cannot be had, or is slow
SLOW_US = 1000  # between processes: they take turns

# What a line begins with, what its value has, whom it speaks against, how much, and why.
RULES = (
    (r"under_free cuLaunchKernel", "STUCK", "launch", HANGS,
     "a launch waits behind a thread that is in cuMemFree"),
    (r"under_free cuStreamWriteValue64", "STUCK", "launch", HANGS,
     "a write of a stream waits behind a thread that is in cuMemFree"),
    (r"under_free ended", "HANGS in: cu(Launch|StreamWrite)", "launch", HANGS,
     "a launch or write beside cuMemFree never ends"),
    (r"queues \d+ usual streams wait; of 8 highest ones pass", "STUCK", "launch", HANGS,
     "streams that wait hold up those of the highest priority"),
    (r"priorities \d+ -1 streams wait; of 8 highest ones pass", "STUCK", "launch", HANGS,
     "streams of priority -1 that wait hold up those of the highest"),
    (r"captured ended", "(?!yes)", "launch", HANGS, "captured memory operations are not replayed"),
    (r"conditional a (write|wait) in a conditional body", "refused|its end|runs: (?!success)",
     "launch", LIMITS, "a conditional body refuses memory operations"),
    (r"conditional a kernel in a conditional body", "refused|its end|runs: (?!success)", "worker",
     LIMITS, "a conditional body refuses kernels"),
    (r"served ended", "(?!yes)", "worker", HANGS,
     "a resident kernel does not see the host's words"),
    (r"first_worker its second launch", "WAITS", "worker", HANGS,
     "a worker's launch waits for streams that wait for the host"),
    (r"first_worker the first launch of pith_worker", "WAITS", "worker", LIMITS,
     "a worker's first launch waits for streams that wait for the host"),
    (r"beside_kernel ended", "(?!yes)", "worker", HANGS,
     "a process whose kernel waits holds up another process"),
)


def values_of(facts, start):
    """Of the lines that begin so, up to the colon."""
    for line in facts:
        found = re.match(f"({start}): (.*)", line)
        if found:
            yield found[1], found.groups()[-1]


def too_few(value):
    found = re.match(r"(\d+) of (\d+)", value)
    return found and int(found[1]) < int(found[2])


def slow(value):
    found = re.match(r"median ([\d.]+) us", value)
    return found and float(found[1]) > SLOW_US


def objections(facts):
    """Whom each speaks against, how much, and why."""
    for start, pattern, against, weight, why in RULES:
        for name, value in values_of(facts, start):
            if re.search(f"^{pattern}" if pattern.startswith("(?!") else pattern, value):
                yield against, weight, f"{why} ({name}: {value})"
    if facts and not any(values_of(facts, "served ended")):
        yield "worker", HANGS, "it is not known whether a resident kernel sees the host's words"
    for name, value in values_of(facts, "served resident kernels at once"):
        if too_few(value):
            yield "worker", HANGS, f"not all resident kernels run at once ({name}: {value})"
    for name, value in values_of(facts, "beside_kernel kernel to host"):
        if slow(value):
            yield "worker", LIMITS, f"processes take turns ({name}: {value})"


def choose(facts):
    """Both ways, the safe one first, and the reasons."""
    found = list(objections(facts))
    weights = {way: sum(weight for against, weight, _ in found if against == way)
               for way in ("launch", "worker")}
    order = sorted(weights, key=weights.get)  # launches where neither is worse
    reasons = [f"against {way}: {why}" for against, _, why in found
               for way in order if against == way]
    if not any(line.split(" ", 1)[0] == "under_free" for line in facts):
        reasons.append("the facts that decide are not known")
    elif not reasons:
        reasons.append("nothing speaks against either")
    return order, reasons


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            facts = file.read().splitlines()
    except OSError:
        facts = []
    order, reasons = choose(facts)
    print("\n".join([" ".join(order), *reasons]))


if __name__ == "__main__":
    main()
