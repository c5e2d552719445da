#!/usr/bin/env python3
"""pith-trace on simulated and on real calls, pith-info. Usage: ... BIN_FOLDER"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
SVG = "{http://www.w3.org/2000/svg}"


def run(program, *arguments, most_files=None, most_bytes=None, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}

    def limit():
        if most_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))

    return subprocess.run([str(BIN / program), *arguments], capture_output=True, text=True,
                          timeout=60, env={**environment, **variables}, check=False,
                          preexec_fn=limit)


def usable(transport):
    return bool(re.search(rf"(?m)^{transport} +usable", run("pith-info", "--transports").stdout))


def load(prefix):
    """The slices by (rank, category), and the picture's root."""
    with open(f"{prefix}.json", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    slices = {}
    for event in events:
        if event["ph"] == "X":
            slices.setdefault((event["pid"], event["cat"]), []).append(event)
    return slices, xml.etree.ElementTree.parse(f"{prefix}.svg").getroot()


def arrows(root):
    return [line for line in root.iter(f"{SVG}line") if "message" in line.get("class")]


class PithTrace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = f"{self.folder}/out"

    def test_simulated_ring(self):
        done = run("pith-trace", "--sim", "allreduce:ring", "--ranks", "8", "--bytes", "1M",
                   "--alpha", "10us", "--beta", "1e-9", "-o", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        slices, root = load(self.out)
        self.assertEqual(root.tag, f"{SVG}svg")
        for rank in range(8):
            sends = slices[rank, "send"]
            self.assertEqual(sum(e["args"]["bytes"] for e in sends), 2 * 7 * (1 << 20) // 8)
            self.assertEqual(sum(e["args"]["bytes"] for e in slices[rank, "receive"]),
                             2 * 7 * (1 << 20) // 8)
            self.assertIn(f"rank {rank}: {2 * 7 * (1 << 20) // 8} bytes sent", done.stdout)
        self.assertEqual(len(arrows(root)), sum(len(e) for (_, op), e in slices.items()
                                                if op == "send"))
        # 14 steps of alpha + n/8 beta each, and the reductions' 0.1 ns a byte.
        end = max(e["ts"] + e["dur"] for group in slices.values() for e in group)
        self.assertAlmostEqual(end, 14 * (10 + 131.072) + 7 * 13.1072, delta=1)

    def test_where_arrows_are(self):
        """From the sender's line to the receiver's, at the times that they name."""
        done = run("pith-trace", "--sim", "allreduce:ring", "--ranks", "3", "--bytes", "48K",
                   "--alpha", "10us", "--beta", "1e-9", "-o", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = load(self.out)[1]
        lanes = {}
        for group in root.iter(f"{SVG}g"):
            for line in group.iter(f"{SVG}line"):
                if line.get("class") == "lane":
                    lanes[group.get("id")] = line
        self.assertEqual(set(lanes), {"rank0", "rank1", "rank2"})
        self.assertEqual(len({lane.get("y1") for lane in lanes.values()}), 3)
        left, right = (float(lanes["rank0"].get(x)) for x in ("x1", "x2"))
        end = float(re.search(r"([\d.]+) us, 12 messages", "".join(root.itertext())).group(1))
        drawn = set()
        for arrow in arrows(root):
            said = re.fullmatch(r"rank (\d) to (\d), lane \d+, step \d+: 16384 bytes, "
                                r"([\d.]+) to ([\d.]+) us", arrow.find(f"{SVG}title").text)
            sender, receiver, begin, arrival = said.groups()
            self.assertEqual(int(receiver), (int(sender) + 1) % 3)
            self.assertEqual(arrow.get("y1"), lanes[f"rank{sender}"].get("y1"))
            self.assertEqual(arrow.get("y2"), lanes[f"rank{receiver}"].get("y1"))
            self.assertGreaterEqual(float(arrival) - float(begin), 10 + 16.384 - 0.002)
            for at, time in (("x1", begin), ("x2", arrival)):
                self.assertAlmostEqual(float(arrow.get(at)),
                                       left + float(time) / end * (right - left), delta=0.1)
            drawn.add((sender, begin))
        self.assertEqual(len(drawn), 12)

    def test_a_thousand_ranks(self):
        done = run("pith-trace", "--sim", "allreduce:double_tree", "--ranks", "1000", "--bytes",
                   "4K", "--most-messages", "50", "-o", self.out, most_bytes=1 << 30)
        self.assertEqual(done.returncode, 0, done.stderr)
        slices, root = load(self.out)
        self.assertEqual({rank for rank, _ in slices}, set(range(1000)))
        self.assertEqual(len(arrows(root)), 50)
        self.assertIn("the first 50 drawn", "".join(root.itertext()))

    def test_real_calls(self):
        if not (BIN / "all_reduce_perf").exists():
            self.skipTest("all_reduce_perf was not built")
        for transport in ("shm", "tcp", "ucx"):
            with self.subTest(transport):
                if not usable(transport):
                    self.skipTest(f"no {transport} here")
                prefix = f"{self.folder}/{transport}"
                done = run("all_reduce_perf", "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "2",
                           "-w", "1", "-c", "1", "--algo", "allreduce:ring", PITH_TRACE=prefix,
                           PITH_TRANSPORT=transport)
                self.assertEqual(done.returncode, 0, done.stderr)
                files = sorted(str(path) for path in pathlib.Path(self.folder).glob(
                    f"{transport}.rank*.jsonl"))
                self.assertEqual(len(files), 2)
                listed = run("pith-trace", *files, "--list").stdout
                rings = re.findall(r"(?m)^call (\d+): allreduce:ring, 65536 bytes, .* us$", listed)
                self.assertGreaterEqual(len(rings), 3, listed)
                for which in ((), ("--call", rings[0])):
                    done = run("pith-trace", *reversed(files), *which, "-o", self.out)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("allreduce:ring, 65536 bytes, 2 ranks", done.stdout)
                slices, root = load(self.out)
                for rank in range(2):
                    self.assertEqual(sum(e["args"]["bytes"] for e in slices[rank, "send"]), 65536)
                    names = {e["name"] for e in slices[rank, "kernel"]}
                    self.assertTrue(any(n.startswith("reduce") for n in names), names)
                self.assertTrue(arrows(root))
                self.assertNotIn("have no other end", done.stdout)

    def test_without_a_file(self):
        if not (BIN / "all_reduce_perf").exists():
            self.skipTest("all_reduce_perf was not built")
        for variables in ({}, {"PITH_TRACE": f"{self.folder}/none/x"}):
            done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-w",
                       "0", **variables)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("none/x.rank0.jsonl" in done.stdout + done.stderr, bool(variables))
            self.assertEqual(os.listdir(self.folder), [])

    def test_mistakes_are_named(self):
        missing = run("pith-trace", f"{self.folder}/nothing")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("nothing cannot be read", missing.stderr)
        self.assertEqual(run("pith-trace").returncode, 1)
        unknown = run("pith-trace", "--sim", "allreduce:nothing")
        self.assertIn('--sim is "allreduce:nothing", expected one of', unknown.stderr)
        self.assertEqual(unknown.returncode, 1)


class PithInfo(unittest.TestCase):
    def test_machines_that_are_made_up(self):
        if "no hwloc" in run("pith-info", "--topology").stdout:
            self.skipTest("no hwloc")
        done = run("pith-info", "--topology", HWLOC_SYNTHETIC="package:2 numa:1(memory=4294967296) "
                   "l3:1(size=8388608) l2:2(size=1048576) core:2 pu:2")
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("sockets        2, cores 8, hardware threads 16",
                     "NUMA nodes     2: CPUs 0-7 (4 GiB), CPUs 8-15 (4 GiB)",
                     "shared L3      8 MiB by CPUs 0-7, 8 MiB by CPUs 8-15",
                     "allowed CPUs   0-15 (16 in all)",
                     "order          of one rank a core, dealt over the sockets: 0 2 4 6 1 3 5 7"):
            self.assertIn(line, done.stdout.splitlines())

    def transports(self, **options):
        """What is said of each, by name."""
        done = run("pith-info", "--transports", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        self.assertEqual(list(said), ["local", "shm", "ucx", "tcp"])
        return said

    def test_why_a_transport_is_not_usable(self):
        said = self.transports(PITH_IFNAME="=nowhere7")
        self.assertRegex(said["tcp"], r'^not usable: .*PITH_IFNAME is "=nowhere7"')
        self.assertRegex(said["ucx"], r'^not usable: .*PITH_IFNAME is "=nowhere7"')
        self.assertTrue(said["shm"].startswith("usable: "), said)
        # The loader needs one file at a time, a segment and its socket more than that.
        said = self.transports(most_files=4)
        self.assertRegex(said["shm"], "^not usable: .*Too many open files")
        self.assertTrue(said["local"].startswith("usable: "), said)

    def test_which_transports_are_forbidden(self):
        for rule, forbidden in (("^shm", {"shm"}), ("tcp", {"local", "shm", "ucx"}), ("", set())):
            with self.subTest(rule):
                said = self.transports(PITH_TRANSPORT=rule)
                self.assertEqual({name for name in said if "forbids" in said[name]}, forbidden)
                for name in forbidden:
                    self.assertTrue(said[name].endswith(f"; PITH_TRANSPORT={rule} forbids it"))

    def test_algorithms_are_those_that_can_be_named(self):
        listed = run("pith-info", "--algorithms").stdout.splitlines()
        self.assertIn("allreduce:ring", listed)
        unknown = run("pith-trace", "--sim", "allreduce:nothing").stderr
        self.assertEqual(listed, unknown.split("expected one of ")[1].strip().split(", "))

    def test_schemes_are_those_that_can_be_named(self):
        done = run("pith-info", "--schemes")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertLessEqual({"none", "bf16", "topk", "exdyna"}, set(listed))
        unknown = run("all_reduce_perf", "--compress", "nothing").stderr
        self.assertIn("expected one of " + ", ".join(listed), unknown)

    def test_plain_is_all_of_it(self):
        done = run("pith-info", PITH_LANES="4", PITH_TRANSPROT="tcp", PITH_IFNAME="lo")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^PITH_LANES +4 +environment")
        self.assertRegex(done.stdout, r"(?m)^PITH_CHUNK +0 +default")
        self.assertRegex(done.stdout, r"(?m)^PITH_TRANSPROT is set, .*mean PITH_TRANSPORT\?$")
        self.assertRegex(done.stdout, r"(?m)^listens at +127\.0\.0\.1 \(PITH_IFNAME=lo\)$")
        self.assertRegex(done.stdout, r"(?m)^tcp +usable: sockets at 127\.0\.0\.1 \(")


if __name__ == "__main__":
    unittest.main()
