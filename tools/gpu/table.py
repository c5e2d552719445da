#!/usr/bin/env python3
"""One table and one JSON file of what the parts of run.sh have left: table.py FOLDER."""
import json
import os
import re
import sys

# Ratios to reach: of a device copy, by the name in cuda_perf's rows; times as fast as others.
TARGETS = {"exact top-k step": 0.90}
TARGET_CUB = 1.6
TARGET_TORCH = 4.0


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def summary_of(path):
    """Catch2's last line, or None where the part has not run."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return None
    found = re.search(r"All tests passed \([^)]*\)|test cases:.*", text)
    return found.group(0) if found else "ended early"


def collect(folder):
    result = {}
    for part in ("tests", "sanitize"):
        summary = summary_of(os.path.join(folder, part + ".txt"))
        if summary:
            result[part] = summary
    for part in ("perf", "torch", "clients"):
        rows = read_json(os.path.join(folder, part + ".json"))
        if rows:
            result[part] = rows
    calls = read_lines(os.path.join(folder, "calls.json"))
    if calls:
        result["calls"] = calls
    return result


def read_lines(path):
    """One JSON object a line."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError):
        return None


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


def lines_of(result):
    if not result:
        return ["nothing measured"]
    lines = [f"{part}: {result[part]}" for part in ("tests", "sanitize") if part in result]
    perf = result.get("perf")
    if perf:
        lines.append(f"{perf['device']}, results {'right' if perf['ok'] else 'WRONG'}")
        lines.append(f"{'case':22} {'contender':34} {'us':>12} {'GB/s':>9} {'of copy':>8}")
        for row in perf["rows"]:
            target = TARGETS.get(row["name"])
            note = "" if target is None else f"  target {target:.2f}"
            lines.append(f"{row['case']:22} {row['name']:34} {row['us']:12.1f} "
                         f"{row['gb_s']:9.1f} {row['of_copy']:8.3f}{note}")
    lines.extend(ratios_of(result))
    for row in result.get("calls", []):
        lines.append(f"all-reduce of {row['ranks']} {row['way']}, {row['bytes']} B: "
                     f"{row['us']:.1f} us, {row['of_copy']:.3f} of the copy bound")
    for name, value in result.get("clients", {}).items():
        lines.append(f"client {name}: {value}")
    return lines


def main():
    folder = sys.argv[1]
    result = collect(folder)
    print("\n".join(lines_of(result)))
    with open(os.path.join(folder, "gpu.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
