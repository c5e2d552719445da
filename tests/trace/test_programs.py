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


def run(program, *arguments, most_files=None, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}

    def limit():
        if most_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))

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

    def test_mistakes_are_named(self):
        missing = run("pith-trace", f"{self.folder}/nothing")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("nothing cannot be read", missing.stderr)
        self.assertEqual(run("pith-trace").returncode, 1)
        unknown = run("pith-trace", "--sim", "allreduce:nothing")
        self.assertIn('--sim is "allreduce:nothing", expected one of', unknown.stderr)
        self.assertEqual(unknown.returncode, 1)


class PithInfo(unittest.TestCase):
    def transports(self, **options):
        """What is said of each, by name."""
        done = run("pith-info", "--transports", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        self.assertEqual(list(said), ["local", "shm", "verbs", "ucx", "tcp"])
        return said

    def test_why_a_transport_is_not_usable(self):
        said = self.transports(PITH_IFNAME="=nowhere7")
        self.assertRegex(said["tcp"], r'^not usable: .*PITH_IFNAME is "=nowhere7"')
        self.assertRegex(said["ucx"], r'^not usable: .*PITH_IFNAME is "=nowhere7"')
        if "this build has no verbs" not in said["verbs"]:
            self.assertRegex(said["verbs"], r'^not usable: .*PITH_IFNAME is "=nowhere7"')
        self.assertTrue(said["shm"].startswith("usable: "), said)
        # The loader needs one file at a time, a segment and its socket more than that.
        said = self.transports(most_files=4)
        self.assertRegex(said["shm"], "^not usable: .*Too many open files")
        self.assertTrue(said["local"].startswith("usable: "), said)

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
        self.assertRegex(done.stdout, r"(?m)^topk .*; keys density=0\.01, .*exchange=auto, ")
        self.assertRegex(done.stdout, r"(?m)^deft .*; keys density=0\.001, ")
        self.assertRegex(done.stdout, r"(?m)^none .*; no keys$")

    def links(self, *arguments, **variables):
        """The printed rows by link, and the lines of the saved table by name."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "links"
            done = run("pith-info", "--links", *arguments, "--save", str(path), **variables)
            self.assertEqual(done.returncode, 0, done.stderr)
            title, whose, *saved = path.read_text(encoding="utf-8").splitlines()
        self.assertEqual(title, "pith links 2")
        self.assertRegex(whose, r"^of [23] ranks on 1 hosts [0-9a-f]{16}$")
        rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
        saved = {name: list(map(float, values)) for name, *values in map(str.split, saved)}
        self.assertEqual(set(rows), set(saved))
        for alpha, alpha_sd, beta, beta_sd in saved.values():
            self.assertTrue(0 < alpha < 10 and 0 < beta < 1e-3, saved)
            self.assertTrue(alpha_sd > 0 and beta_sd > 0, saved)  # how large, the load decides
        return rows, saved

    def test_links_in_shared_memory(self):
        rows, _ = self.links("--ranks", "2", PITH_TRANSPORT="shm")
        self.assertEqual(set(rows), {"views", "copies", "messages", "reduce/host"})
        self.assertRegex(rows["views"], r"^views +[\d.e]+ .*% .*% .* \d+  ranks 0 \(.*\) and 1 \(")

    def test_links_between_ranks_apart(self):
        rows, _ = self.links("--ranks", "3", PITH_TRANSPORT="tcp")
        self.assertEqual(set(rows), {"path/0", "path/1", "path/2", "reduce/host"})
        for name, first, second in (("path/0", 0, 1), ("path/1", 0, 2), ("path/2", 1, 2)):
            self.assertRegex(rows[name], rf"ranks {first} \(.*\) and {second} \(")

    def test_links_mistakes(self):
        for arguments, words in (([], "no launcher has said which rank this is"),
                                 (["--ranks", "2", "--save", "/nowhere/at/all"],
                                  "/nowhere/at/all cannot be written")):
            done = run("pith-info", "--links", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
        self.assertNotEqual(run("pith-info", "--save", "links").returncode, 0)

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
