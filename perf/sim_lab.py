#!/usr/bin/env python3
"""How near the simulator is to shaped links: the same collectives over both.

For each link and number of ranks, each rank on a host of its own in a laboratory (tests/netlab),
`pith-info --links` measures the links, regret_bench times every algorithm, and pith-sim runs the
same coroutines in virtual time on links with the measured seconds a message and a byte (and a
reduced byte). The error is simulated / measured - 1; its size counts.

    perf/sim_lab.py --links 1g+1ms,0.1g+5ms --ranks 2,4,8 --minutes 10      # as root

Times are medians over rounds of the slowest rank. What is over 0.5 s, or too slow to be worth its
rounds, is left out. Ranks and the switch share one machine's cores, which the
simulator does not know: on fast links and with many ranks that is most of a call.
"""
import argparse
import json
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "regret"))
import links  # noqa: E402
from lab import Lab, Signals, program  # noqa: E402

COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "broadcast")
# Classes of links between ranks of different hosts.
WIRE = ("path", "network", "messages")
TARGET = 0.10
CALL_LIMIT_S = 0.5


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--links", default="1g,1g+1ms,0.1g+1ms,0.1g+5ms")
    add("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[2, 4, 8])
    add("--sizes", type=lambda text: [int(one) for one in text.split(",")],
        default=[8, 16384, 262144, 2097152], help="bytes")
    add("--laid", action="store_true", help="simulate links as laid, not as pith-info finds them")
    add("--minutes", type=float, default=12, help="for everything")
    add("--json", type=pathlib.Path)
    return parser.parse_args()


def laid(link):
    """The same as they were laid."""
    return {"alpha": link.delay + links.PACKET_S, "beta": 8 / link.rate, "gamma": 0.04e-9}


def fitted(link, ranks, folder):
    """Seconds a message, a byte and a reduced byte, as pith-info finds them on such links."""
    path = pathlib.Path(folder) / "links"
    with Lab(ranks, link=link.kind, rate=link.rate, delay=link.delay, ipv6=False,
             congestion="cubic") as lab:
        common = links.clean_environment() | {
            "PITH_IFNAME": "eth0", "PITH_SIZE": str(ranks), "PITH_TRANSPORT": "tcp",
            "PITH_ROOT": f"{lab[0].address}:{links.ROOT_PORT}",
            "PITH_SECRET": secrets.token_hex(16)}
        links.finish([host.start([program("pith-info"), "--links", "--save", path],
                                 {**common, "PITH_RANK": str(host.number)},
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                      for host in lab], 120)
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    of_links = rows[2:]  # the lines before say whose links they are
    found = {row[0]: (float(row[1]), float(row[3])) for row in of_links}
    wire = next(value for name, value in found.items() if name.startswith(WIRE))
    return {"alpha": wire[0], "beta": wire[1],
            "gamma": found.get("reduce/host", (0, 0.2e-9))[1], "found": found}


def measured(link, ranks, sizes, seconds, folder):
    """By collective, bytes and algorithm: seconds."""
    path = pathlib.Path(folder) / "cells"
    flags = ["--collectives", ",".join(COLLECTIVES), "--sizes", ",".join(map(str, sizes)),
             "--call-limit", str(CALL_LIMIT_S), "--rounds-max", "9"]
    plain = links.dataclasses.replace(link, settings=())
    try:
        links.run(plain, ranks, flags, seconds, path)
    except links.Failed as error:
        print(f"# {link.name}, {ranks} ranks: {error}", file=sys.stderr)
    times = {}
    for cell in links.cells_in(path, link):
        for one in cell.get("candidates", []):
            # The default is an algorithm, too; what was only tried has one rough time.
            if one["rounds"] > 0 and not one["name"].startswith("default"):
                times[cell["collective"], cell["bytes"], one["name"]] = 1e-6 * one["us"]
    return times


def simulated(found, ranks, times, folder):
    """The same keys; pith-sim's block is what a rank gives, regret's is the sum of all."""
    path = pathlib.Path(folder) / "cluster"
    path.write_text(json.dumps({
        "hosts": ranks, "ranks_per_host": 1, "uplink": "own", "gamma": found["gamma"],
        "between": {"alpha": found["alpha"], "beta": found["beta"]}}), encoding="utf-8")
    result = {}
    for collective, size in sorted({key[:2] for key in times}):
        block = size if collective in ("allreduce", "broadcast") else max(size // ranks, 4)
        told = subprocess.run([program("pith-sim"), str(path), "--collective", collective,
                               "--bytes", str(max(block, 4)), "--json"],
                              capture_output=True, text=True, check=True).stdout
        for run in json.loads(told)["sizes"][0]["runs"]:
            if "simulated_s" in run:
                result[collective, size, run["name"]] = run["simulated_s"]
    return result


def line_of(name, errors):
    if not errors:
        return f"{name:28} {0:5}"
    sizes = sorted(map(abs, errors))
    return (f"{name:28} {len(sizes):5} {100 * statistics.median(sizes):8.1f} % "
            f"{100 * statistics.median(errors):+8.1f} % {100 * sizes[len(sizes) * 9 // 10]:8.1f} %")


def report(rows):
    print(f"{'':28} {'calls':>5} {'median':>10} {'signed':>10} {'p90':>10}")
    keys = [("all", lambda row: "")] + [
        (f"by {name}", lambda row, name=name: row[name])
        for name in ("link", "ranks", "collective", "bytes", "algorithm")]
    for title, key in keys:
        print(title)
        for value in sorted({key(row) for row in rows}):
            print(line_of(f"  {value}", [row["error"] for row in rows if key(row) == value]))
    if rows:
        median = statistics.median(abs(row["error"]) for row in rows)
        print(f"median error {100 * median:.1f} %, target {100 * TARGET:.0f} %: "
              f"{'met' if median <= TARGET else 'missed'}")


def main():
    options = parse()
    groups = [(link, ranks) for link in map(links.parse_link, options.links.split(","))
              for ranks in options.ranks]
    Signals.take()
    rows = []
    for link, ranks in groups:
        lacks = link.lacks() or (None if link.rate else "it is no link between hosts")
        if lacks:
            sys.exit(f"sim_lab: {link.name}: {lacks}")
        with tempfile.TemporaryDirectory(prefix="sim-lab-") as folder:
            found = laid(link) if options.laid else fitted(link, ranks, folder)
            times = measured(link, ranks, options.sizes, 60 * options.minutes / len(groups), folder)
            sim = simulated(found, ranks, times, folder)
        print(f"# {link.name}, {ranks} ranks: a message {1e6 * found['alpha']:.0f} us, a byte "
              f"{1e9 * found['beta']:.2f} ns, {len(times)} times", file=sys.stderr)
        rows += [{"link": link.name, "ranks": ranks, "collective": key[0], "bytes": key[1],
                  "algorithm": key[2], "measured": times[key], "simulated": sim[key],
                  "error": sim[key] / times[key] - 1} for key in times if key in sim]
    report(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
