#!/usr/bin/env python3
"""One table and one JSON file of what the parts of run.sh have left: table.py FOLDER."""
import glob
import json
import os
import re
import sys

# Ratios to reach: of a device copy, by the name in cuda_perf's rows; times as fast as others.
TARGETS = {"exact top-k step": 0.90}
TARGET_CUB = 1.6
TARGET_TORCH = 4.0
PINNED, TARGET_STAGING = "pinned copy", 0.90
# All-reduces of ranks on one device: of the copy bound from so many bytes on, microseconds of 8 B.
TARGET_OF_COPY = 0.50
TARGET_FROM_BYTES = 64 << 20
TARGET_US = 15.0
# Sparse sums of float32 over loopback against NVIDIA's dense ones of as many elements, by the type
# of these, of the largest vector.
TARGETS_SPARSE = {"float32": 10.0, "bfloat16": 5.0}
SIZE_OF = {"float32": 4, "bfloat16": 2}
TESTS = ("streams-launch", "streams-worker", "tests", "sanitize")
CLIENTS = ("clients-launch", "clients-worker", "fallback-clients")
OTHER, SPARSE = "NVIDIA, sockets", "Pith, tcp, 1 %"
LINKS = (", 10 Gbit/s", "")  # what a way's name ends with, by the links that it was timed over


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def read_json(path):
    try:
        return json.loads(read_text(path) or "")
    except ValueError:
        return None


def read_lines(path):
    """One JSON object a line; a line that was cut off is left out."""
    rows = []
    for line in (read_text(path) or "").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cases_of(text):
    """What became of each case that had a process of its own."""
    return re.findall(r"^case (.*): (ok|HANGS|not reached|FAILED.*)$", text, re.M)


def summary_of(text):
    """Of a program's cases, or Catch2's last lines, one a program."""
    cases = cases_of(text)
    if cases:
        return f"{sum(fate == 'ok' for _, fate in cases)} of {len(cases)} cases passed"
    found = re.findall(r"All tests passed \([^)]*\)|test cases:.*|ERROR SUMMARY:.*", text)
    return "; ".join(found) if found else "ended early"


def failed_cases(text):
    """Or Catch2 heads what failed with its name between two rules."""
    cases = cases_of(text)
    if cases:
        return [f"{name}: {fate}" for name, fate in cases if fate != "ok"]
    found = re.findall(r"^-{79}\n(\S.*)\n-{79}$", text, re.M)
    return list(dict.fromkeys(found))


def notes_of(folder):
    """What the parts have said of themselves, each part's last how it ended."""
    notes = {}
    for path in sorted(glob.glob(os.path.join(folder, "notes-*.txt"))):
        notes[os.path.basename(path)[len("notes-"):-len(".txt")]] = read_text(path).splitlines()
    return notes


def nccl_tests_of(text):
    """A line for each run, which begins with one of ours."""
    found = []
    for run in re.split(r"^nccl-tests ", text, flags=re.M)[1:]:
        bad = re.search(r"Out of bounds values : (\d+ \w+)", run)
        rate = re.search(r"Avg bus bandwidth *: *(\S+)", run)
        found.append(f"{run.splitlines()[0]}: out of bounds {bad[1] if bad else '?'}, "
                     f"{rate[1] if rate else '?'} GB/s")
    return found


def collect(folder):
    result = {}
    notes = notes_of(folder)
    if notes:
        result["parts"] = notes
    facts = read_text(os.path.join(folder, "facts.txt"))
    if facts:
        result["facts"] = facts.splitlines()
    for part in TESTS:
        text = read_text(os.path.join(folder, part + ".txt"))
        if text is not None:
            result[part] = summary_of(text)
            failed = failed_cases(text)
            if failed:
                result[part + " failed"] = failed
    text = read_text(os.path.join(folder, "nccltests.txt"))
    if text is not None:
        result["nccl-tests"] = nccl_tests_of(text)
    text = read_text(os.path.join(folder, "steps.txt"))
    if text:
        result["steps"] = text.splitlines()
    text = read_text(os.path.join(folder, "resources.txt"))
    if text:
        result["resources"] = resources_of(text)
    for part in ("perf", "torch", *CLIENTS):
        rows = read_json(os.path.join(folder, part + ".json"))
        if rows:
            result[part] = rows
    for part in ("calls", "peers", "fallback"):
        rows = read_lines(os.path.join(folder, part + ".json"))
        if rows:
            result[part] = rows
    return result


def resources_of(text):
    """By the function, what ptxas has said: registers of kernels, stack, spilled bytes."""
    found = {}
    for block in re.split(r"Function properties for ", text)[1:]:
        name = short_name(block.splitlines()[0])
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", block)
        registers = re.search(r"Used (\d+) registers", block)
        if stack:
            found[name] = dict(zip(("stack", "stored", "loaded"), map(int, stack.groups())))
            if registers:
                found[name]["registers"] = int(registers[1])
    return found


def short_name(name):
    """A worker's share of a kernel, by the kernel's name alone."""
    name = name.strip().replace("pith::cuda::", "")
    share = re.match(r"(?:void )?run_share<(.*), DeviceBlock<", name)
    return f"pith_worker's {share[1]}" if share else name


def lines_of_resources(resources):
    spilling = {name for name, of in resources.items() if of["stored"] or of["loaded"]}
    for name in sorted(spilling | {"pith_worker"} & set(resources)):
        of = resources[name]
        registers = f"{of['registers']} registers, " if "registers" in of else ""
        yield (f"code of {name}: {registers}{of['stack']} B of stack, spills {of['stored']} B "
               f"stored, {of['loaded']} B loaded")
    others = [of for name, of in resources.items() if name not in spilling]
    most = max((of.get("registers", 0) for of in others), default=0)
    yield f"code of {len(others)} other functions: no spills, at most {most} registers"


def ratios_of(result):
    """How often ours fits into the others' time, by the case."""
    rows = result.get("perf", {}).get("rows", [])
    for case in dict.fromkeys(row["case"] for row in rows):
        of_case = {row["name"]: row["us"] for row in rows if row["case"] == case}
        own = of_case.get("exact top-k step")
        cub = [us for name, us in of_case.items() if name.startswith("CUB")]
        if not own:
            continue
        if cub:
            yield f"{case}: best of CUB / ours {min(cub) / own:.2f}  target {TARGET_CUB:.2f}"
        torch = result.get("torch", {}).get(case)
        if torch:
            yield f"{case}: torch / ours {torch / own:.2f}  target {TARGET_TORCH:.2f}"


def staging_ratios_of(rows):
    """Of a pinned copy's rate, by the case."""
    times = {(row["case"], row["name"]): row["us"] for row in rows}
    for (case, name), us in times.items():
        whole = times.get((case, PINNED))
        if whole and name != PINNED:
            yield f"{case}, {name}: {whole / us:.2f} of a pinned copy  target {TARGET_STAGING:.2f}"


def sparse_ratios_of(rows):
    times = {}  # by who, ranks, elements and type
    for row in rows:
        if "queued" in row:
            continue
        kind = row.get("type", "float32")
        times[row["way"], row["ranks"], row["bytes"] // SIZE_OF[kind], kind] = row["us"]
    for link in LINKS:
        own = [(ranks, count) for way, ranks, count, kind in times
               if way == SPARSE + link and kind == "float32"]
        for ranks in sorted({of for of, _ in own}):
            most = max(count for of, count in own if of == ranks)
            for kind, target in TARGETS_SPARSE.items():
                other = times.get((OTHER + link, ranks, most, kind))
                if other is None:
                    continue
                ratio = other / times[SPARSE + link, ranks, most, "float32"]
                yield (f"sparse of {ranks}{link}, {most} elements: NVIDIA {kind} / ours "
                       f"{ratio:.2f}  target {target:.2f}")


def note_of_call(row):
    if "queued" in row:
        return f", one of {row['queued']} queued"
    return f", {row['of_copy']:.3f} of the copy bound{target_of_call(row)}"


def target_of_call(row):
    if row["bytes"] == 8:
        return f"  target {TARGET_US:.0f} us"
    return f"  target {TARGET_OF_COPY:.2f}" if row["bytes"] >= TARGET_FROM_BYTES else ""


def lines_of_facts(facts):
    """The rest is in facts.txt."""
    telling = [line for line in facts
               if re.search(r"HANGS|STUCK|WAITS|gave up|signal|refused", line)]
    yield f"facts: {len(facts)}, of which telling:"
    yield from ("  " + line for line in telling)


def lines_of_perf(perf):
    yield f"{perf['device']}, results {'right' if perf['ok'] else 'WRONG'}"
    yield f"{'case':22} {'contender':34} {'us':>12} {'GB/s':>9} {'of copy':>8}"
    for row in perf["rows"]:
        target = TARGETS.get(row["name"])
        note = "" if target is None else f"  target {target:.2f}"
        yield (f"{row['case']:22} {row['name']:34} {row['us']:12.1f} "
               f"{row['gb_s']:9.1f} {row['of_copy']:8.3f}{note}")


def lines_of(result):
    if not result:
        return ["nothing measured"]
    lines = [f"part {note}" for notes in result.get("parts", {}).values() for note in notes]
    if "steps" in result:
        lines.append(f"steps, the safe way first: {result['steps'][0]}")
        lines.extend(f"  {reason}" for reason in result["steps"][1:])
    if "facts" in result:
        lines.extend(lines_of_facts(result["facts"]))
    for part in TESTS:
        if part in result:
            lines.append(f"{part}: {result[part]}")
        lines.extend(f"  failed: {case}" for case in result.get(part + " failed", []))
    if "perf" in result:
        lines.extend(lines_of_perf(result["perf"]))
    lines.extend(ratios_of(result))
    lines.extend(staging_ratios_of(result.get("perf", {}).get("rows", [])))
    for row in result.get("calls", []):
        lines.append(f"all-reduce of {row['ranks']} {row['way']}, {row['bytes']} B: "
                     f"{row['us']:.1f} us{note_of_call(row)}")
    for row in result.get("peers", []) + result.get("fallback", []):
        lines.append(f"{row['way']}, {row['ranks']} ranks, {row['bytes']} B "
                     f"of {row.get('type', 'float32')}: {row['us']:.1f} us"
                     f"{', one of %d queued' % row['queued'] if 'queued' in row else ''}")
    lines.extend(sparse_ratios_of(result.get("peers", [])))
    for part in CLIENTS:
        lines.extend(f"{part.replace('clients', 'client')} {name}: {fate}"
                     for name, fate in result.get(part, {}).items())
    if "resources" in result:
        lines.extend(lines_of_resources(result["resources"]))
    lines.extend(f"nccl-tests {line}" for line in result.get("nccl-tests", []))
    return lines


def main():
    folder = sys.argv[1]
    result = collect(folder)
    print("\n".join(lines_of(result)))
    # At once, or not at all: it may be read, or time end, meanwhile.
    path = os.path.join(folder, "gpu.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
