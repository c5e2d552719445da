#!/usr/bin/env python3
"""compare.py without its programs: output of programs of peers, tables, sets of results, plots."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
sys.path[:0] = [str(PERF), str(PERF / "compare")]
import collectives  # noqa: E402
import compare  # noqa: E402
import contenders  # noqa: E402
import peer_programs  # noqa: E402
import machine_facts  # noqa: E402
import result_plots  # noqa: E402
import result_set  # noqa: E402
import result_table  # noqa: E402

# What ucc_perftest of UCC 1.2.0 printed, without and with -F.
UCC = """\
Collective:             Allreduce
Memory type:            host
Datatype:               float32
Reduction:              sum
Inplace:                0
Warmup:
  small                 12
  large                 12
Iterations:
  small                 100
  large                 100

       Count        Size                Time, us
                                 avg         min         max
        1024        4096        2.50        2.47        2.53
"""
UCC_FULL = """\
       Count        Size                Time, us                           Bandwidth, GB/s
                                 avg         min         max         avg         max         min
       16384       65536        9.94        9.89        9.99        6.59        6.63        6.56
"""
# What the benchmark of oneCCL 2021.15 printed, less a few lines; and in the form that it had
# before the count of elements was a column.
ONECCL = """\
options:
  processes:       2
  backend:         host
  iters:           20
  warmup_iters:    4
  iter_policy:     off
  elem_counts:     [1024]
  check:           last
  csv_filepath:

datatype: float32
reduction: sum

#------------------------------------------------------------
# Benchmarking: allreduce
# #processes: 2
#------------------------------------------------------------

        #bytes   #elem_count  #repetitions   t_min[usec]   t_max[usec]   t_avg[usec]  stddev[%]
          4096          1024            20          9.53          9.57          9.55       0.26

# All done
"""
ONECCL_OLD = """\
        #bytes  #repetitions   t_min[usec]   t_max[usec]   t_avg[usec]      stddev[%]
             8            16         40.00         52.50         47.00           3.10
"""


def options(**more):
    asked = {key: peer_programs.Asked(f"/opt/{key}", [], key) for key in peer_programs.PROGRAMS}
    return argparse.Namespace(**{"iters": "auto", "batches": 7, "batch_ms": 20, "ranks": 2,
                                 "collective": "allreduce",
                                 "peer_programs": asked, **more})


class PeerPrograms(unittest.TestCase):
    def test_ucc_times(self):
        self.assertEqual(peer_programs.ucc_times(UCC), {4096: 2.53})  # the slowest rank's
        self.assertEqual(peer_programs.ucc_times(UCC_FULL), {65536: 9.99})
        self.assertEqual(peer_programs.ucc_times("ucc_perftest: no such option\n"), {})

    def test_oneccl_times(self):
        self.assertEqual(peer_programs.oneccl_times(ONECCL), {4096: 9.57})
        self.assertEqual(peer_programs.oneccl_times(ONECCL_OLD), {8: 52.50})
        self.assertEqual(peer_programs.oneccl_times("8 16 40.00 52.50 47.00 3.10\n"), {})  # no head

    def test_ucc_version(self):
        with tempfile.TemporaryDirectory() as folder:
            told = "# UCC version=1.2.0 revision 6ab3\n# Configured with: --prefix=/opt"
            make_program(pathlib.Path(folder) / "ucc_info", f"printf '{told}'")
            self.assertEqual(peer_programs.ucc_version(f"{folder}/ucc_perftest"), "UCC 1.2.0")
        with mock.patch.dict(os.environ, {"PATH": folder}):
            self.assertEqual(peer_programs.ucc_version(f"{folder}/ucc_perftest"),
                             "UCC, version unknown")

    def test_iterations(self):
        small = peer_programs.iterations(2, options())
        large = peer_programs.iterations(1 << 24, options())
        self.assertGreater(small, 5000)
        self.assertEqual(large, peer_programs.CALLS_MIN)
        self.assertEqual(peer_programs.iterations(2, options(iters="5", batches=3)), 15)

    def test_calls(self):
        calls = list(contenders.peer_calls("ucc-tcp", options(), [1, 4096]))
        self.assertEqual([call.elements for call in calls], [1, 1024])  # bytes round to floats
        self.assertEqual(calls[1].environment["UCX_NET_DEVICES"], "lo")
        self.assertRegex(" ".join(calls[1].command),
                         r"^mpirun.* -n 2 /opt/ucc -c allreduce -d float32 .*-b 1024 -e 1024 ")
        asked = {"oneccl": peer_programs.Asked("/opt/benchmark", ["mpiexec.hydra", "-l"], "")}
        call, = contenders.peer_calls("oneccl", options(peer_programs=asked), [8])
        self.assertEqual(call.command[:5], ["mpiexec.hydra", "-l", "-n", "2", "/opt/benchmark"])
        self.assertIn("--elem_counts 2 ", " ".join(call.command))

    def test_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("ucc_perftest", "benchmark", "mpirun"):
                make_program(pathlib.Path(folder) / name, "exit 0")
            with mock.patch.dict(os.environ, {"PATH": folder}):
                os.environ.pop("CCL_ROOT", None)
                found = peer_programs.find("ucc", None, None)
                self.assertIsNone(peer_programs.missing("ucc", found))
                # Any program may be called benchmark.
                found = peer_programs.find("oneccl", None, None)
                self.assertIn("CCL_ROOT", peer_programs.missing("oneccl", found))
                os.environ["CCL_ROOT"] = "/opt/ccl/2021.14"
                found = peer_programs.find("oneccl", None, None)
                self.assertEqual(found.version, "oneCCL 2021.14")
                self.assertIsNone(peer_programs.missing("oneccl", found))
                found = peer_programs.find("oneccl", None, "mpiexec.hydra -l")
                self.assertEqual(peer_programs.missing("oneccl", found), "no mpiexec.hydra")
                found = peer_programs.find("ucc", "/nowhere/ucc", None)
                self.assertEqual(peer_programs.missing("ucc", found),
                                 "--ucc: /nowhere/ucc is no program")


def make_program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def row(size, pith, **peers):
    known = {peer: took for peer, took in peers.items() if took}
    best = min(known, key=known.get) if known else None
    return {"bytes": size, "pith_us": pith, "peers_us": peers, "best_peer": best,
            "ratio": known[best] / pith if best and pith else None}


ROWS = [row(8, 2, ompi=4, mpich=6), row(4096, 10, ompi=None, mpich=5), row(65536, 10, ompi=None,
                                                                           mpich=None)]


def document(rows=None, ranks=2, started="2026-11-29T07:00:00+00:00", **states):
    states = states or {result_table.ONE_STATE: ROWS if rows is None else rows}
    run = {"ranks": ranks, "rounds": 5, "foreign_percent_median": 1.5, "runs_noisy": 3,
           "errors": {"mpich": "exit status 1: no"}, "cases": {"private": states},
           "contenders": {"pith-private": {"library": "Pith 0.1"}, "ompi": {"library": "OMPI"}}}
    return {"format": result_set.FORMAT, "collective": "All-reduce", "started": started,
            "left_out": {"ucc": "no program"}, "runs": [run]}


MACHINE = {"cpu": "AMD EPYC 9575F 64-Core Processor", "cores": 2, "governors": [],
           "libraries": {"ompi": "a|b"}, "memory_gib": None}


class Tables(unittest.TestCase):
    def test_geomean(self):
        self.assertAlmostEqual(result_table.geomean([2, None, 0.5]), 1)
        self.assertIsNone(result_table.geomean([None]))

    def test_cells(self):
        cells = result_table.cells_of("private", ROWS)
        self.assertEqual(cells[0], ["size", "pith-private", "ompi", "mpich", "ratio", "best peer"])
        self.assertEqual(cells[1], ["8 B", "2.00", "4.00", "6.00", "2.00", "ompi"])
        self.assertEqual(cells[3], ["64 KiB", "10.00", "-", "-", "-", "-"])
        # Peer by peer over Pith; then the ratios 2 and 0.5.
        self.assertEqual(cells[4], ["/ Pith", "", "2.00", "1.22", "1.00", "geomean"])

    def test_plain(self):
        lines = result_table.plain_lines("private", ROWS, result_table.ONE_STATE)
        self.assertIn("ratio = best peer / pith-private", lines[0])
        self.assertEqual(lines[1].index("private") + len("private"), lines[2].index("2.00") + 4)
        self.assertTrue(all(line == line.rstrip() for line in lines))

    def test_report(self):
        pictures = {(2, "private", result_table.ONE_STATE): "private-2-ranks.png"}
        text = result_table.report(document(), MACHINE, pictures)
        self.assertIn("| private | shared memory, the caller's own buffers | 2 | all runs | "
                      "2 of 3 | 1.00 | 0.50 | 4 KiB |", text)
        self.assertIn("](private-2-ranks.png)", text)
        self.assertIn("- Left out: ucc: no program.", text)
        self.assertIn("- Left out: mpich: exit status 1: no.", text)
        self.assertIn("| libraries | ompi: a\\|b |", text)
        self.assertIn("| memory gib | unknown |", text)
        self.assertNotIn("![", result_table.report(document(), MACHINE, {}))

    def test_nothing_measured(self):
        text = result_table.report(document([row(8, None, ompi=None)]), MACHINE, {})
        self.assertIn("| 0 of 1 | - | - | - |", text)

    def test_side_by_side(self):
        near = {"cores near each other": [row(8, 1, ompi=3)]}
        sets = {"amd": document(ROWS[:1]), "intel": document(**near),
                "one": document([row(256, 4, mpich=2)], ranks=4)}
        text = result_table.side_by_side(sets, {})
        self.assertIn("| size | amd: Pith us | best peer us | ratio | "
                      "intel, cores near each other: Pith us | best peer us | ratio |", text)
        self.assertIn("| 8 B | 2.00 | 4.00 | 2.00 | 1.00 | 3.00 | 3.00 |", text)
        self.assertIn("## private, 4 ranks", text)
        sizes = {"amd": document(ROWS[:1]), "intel": document(ROWS[1:2])}
        self.assertIn("| 8 B | 2.00 | 4.00 | 2.00 | - | - | - |",
                      result_table.side_by_side(sizes, {}))


class States(unittest.TestCase):
    def test_medians(self):
        """Of runs in which the cores stayed near each other, or far apart."""
        results = compare.Results(["pith-private", "ompi"])
        for took, distances in ((1, (100, 110)), (3, (100, 100)), (9, (600, 620)),
                                (50, (100, 600))):
            results.rounds["pith-private"].setdefault(8, []).append((took, distances))
            results.rounds["ompi"].setdefault(8, []).append((2 * took, distances))
        near, far = results.states()
        self.assertEqual(results.median("pith-private", 8, near), 2)
        self.assertEqual(results.median("pith-private", 8, far), 9)
        one, = compare.rows_of("private", results, [8], near)
        self.assertEqual((one["best_peer"], one["ratio"]), ("ompi", 2))
        self.assertEqual(compare.Results([]).states()[0][0], result_table.ONE_STATE)


class Sets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        quiet = mock.patch("sys.stderr")
        quiet.start()
        self.addCleanup(quiet.stop)

    def test_slug(self):
        for name, expected in (("AMD EPYC", "amd-epyc"), ("", "unknown"),
                               ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon-2-20ghz"),
                               (MACHINE["cpu"], "amd-epyc-9575f-64-core")):
            self.assertEqual(result_set.slug(name), expected)

    def test_write_and_render(self):
        first = result_set.write(self.here, document(), MACHINE)
        self.assertEqual(first.name, "2026-11-29-amd-epyc-9575f-64-core-2c")
        again = result_set.write(self.here, document(), MACHINE)
        self.assertEqual(again.name, first.name + "-2")  # never over another one
        self.assertEqual(result_set.read(first), (document(), MACHINE))
        self.assertEqual(result_set.libraries_of(document())["ompi"], "OMPI")
        before = (first / "table.md").read_text(encoding="utf-8")
        (first / "table.md").write_text("stale", encoding="utf-8")
        elsewhere = self.here / "elsewhere" / first.name
        shutil.copytree(again, elsewhere)
        result_set.render([first, again, elsewhere], self.here / "both")
        self.assertEqual((first / "table.md").read_text(encoding="utf-8"), before)
        text = (self.here / "both" / "side-by-side.md").read_text(encoding="utf-8")
        for name in (first.name, again.name, str(elsewhere)):  # one name twice
            self.assertIn(f"{name}: Pith us", text)

    def test_unreadable(self):
        self.assertRaisesRegex(result_set.Unreadable, "no set of results", result_set.read,
                               self.here)
        for name, value in (("machine.json", {}), ("results.json", {"format": 99})):
            result_set.write_json(self.here / name, value)
        self.assertRaisesRegex(result_set.Unreadable, "format 99", result_set.read, self.here)

    def test_without_matplotlib(self):
        with mock.patch.object(result_plots, "Figure", None):
            folder = result_set.write(self.here, document(), MACHINE)
        self.assertEqual(sorted(one.name for one in folder.iterdir()),
                         ["machine.json", "results.json", "table.md"])
        told = "".join(call.args[0] for call in sys.stderr.write.call_args_list)
        self.assertIn("python3-matplotlib", told)
        self.assertIn(f"--render {folder}", told)

    @unittest.skipIf(result_plots.Figure is None, "no matplotlib here")
    def test_pictures(self):
        states = {"cores near each other": ROWS, "cores far apart": ROWS[:1]}
        folder = result_set.write(self.here, document(**states), MACHINE)
        text = (folder / "table.md").read_text(encoding="utf-8")
        for state in ("near-each-other", "far-apart"):
            picture = folder / f"private-2-ranks-cores-{state}.png"
            self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
            self.assertIn(f"]({picture.name})", text)
        before = picture.read_bytes()
        result_set.render([folder], None)
        self.assertEqual(picture.read_bytes(), before)
        result_set.render([folder, result_set.write(self.here, document(), MACHINE)],
                          self.here / "both")
        self.assertTrue((self.here / "both" / "private-2-ranks.png").is_file())


class Facts(unittest.TestCase):
    def test_machine(self):
        fields = machine_facts.lscpu_fields("CPU(s):  2\nModel name:   Two: words\n",
                                            machine_facts.PROCESSOR)
        self.assertEqual(fields, {"cpu": "Two: words"})
        found = machine_facts.machine()
        self.assertGreaterEqual(found["cores"], 1)
        self.assertTrue(found["cpu"])
        self.assertEqual(machine_facts.output_of("/nowhere/lscpu"), "")
        self.assertEqual(machine_facts.commit_of("/"), "unknown")

    def test_bus_bandwidth(self):
        self.assertAlmostEqual(result_plots.bus_gbytes_per_s(4000, 2, 4, "allreduce"), 3)
        self.assertAlmostEqual(result_plots.bus_gbytes_per_s(4000, 2, 4, "alltoall"), 1.5)
        self.assertAlmostEqual(result_plots.bus_gbytes_per_s(4000, 2, 4, "broadcast"), 2)


# Stands for mpirun and ucc_perftest: -b is a count of elements.
FAKE = """\
[ "$1 $2" = "-n 2" ] || { echo "no launcher: $*" >&2; exit 3; }
while [ "$1" != -b ]; do shift; done
[ "$2" != 1024 ] || { printf 'a WARNING\\nno memory\\n' >&2; exit 4; }
printf '  %d %d 1.00 0.90 %d.50\\n' $2 $(($2 * 4)) $2
"""


class Program(unittest.TestCase):
    """compare.py itself, with a program that is a script."""

    def run_with(self, folder, sizes, *more):
        fake = pathlib.Path(folder) / "fake"
        make_program(fake, FAKE)
        return subprocess.run(
            [sys.executable, "-B", str(PERF / "compare.py"), "--case", "private", "--only", "ucc",
             "--quick", "--quiet-wait", "0", "--sizes", sizes, "--bin", folder,
             "--ucc", "/bin/true", "--ucc-mpirun", str(fake),
             "--results", str(pathlib.Path(folder) / "results"), *more],
            capture_output=True, text=True, timeout=100, check=False)

    def test_peer_program(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, "8,1MiB")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"(?m)^ +8 B +- +2.50 +- +ucc$")
            self.assertRegex(done.stdout, r"(?m)^ +1 MiB +- +262144 +- +ucc$")
            kept, = (pathlib.Path(folder) / "results").iterdir()
            self.assertIn(f"# results: {kept}", done.stdout)
            results = json.loads((kept / "results.json").read_text(encoding="utf-8"))
            machine = json.loads((kept / "machine.json").read_text(encoding="utf-8"))
            self.assertEqual(results["runs"][0]["rounds"], 2)
            self.assertIn("ucc", machine["libraries"])
            self.assertTrue(machine["command"].startswith("perf/compare.py --case private"))
            self.assertIn("| 8 B | - | 2.50 | - | ucc |",
                          (kept / "table.md").read_text(encoding="utf-8"))
            done = subprocess.run([sys.executable, "-B", str(PERF / "compare.py"), "--render",
                                   folder], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no set of results", done.stderr)

    def test_peer_program_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(folder, "8,4KiB")
            self.assertEqual(done.returncode, 0, done.stderr)  # a peer's failure is not Pith's
            self.assertIn("# ucc: exit status 4: no memory", done.stderr)

    def test_refusals(self):
        for arguments, words in ((["--iters", "0"], "iters is '0'"),
                                 (["--sizes", "8x"], "size is '8x'"),
                                 (["--ranks", "0"], "ranks is '0'"),
                                 (["--into", "/tmp/x"], "--render")):
            told = io.StringIO()
            with mock.patch.object(sys, "argv", ["compare.py", *arguments]), \
                    contextlib.redirect_stderr(told):
                self.assertRaises(SystemExit, compare.parse_arguments)
            self.assertIn(words, told.getvalue())



class Collectives(unittest.TestCase):
    def test_whole_sizes(self):
        self.assertEqual([collectives.whole_size("allreduce", size, 4) for size in (1, 8, 4098)],
                         [4, 8, 4096])
        self.assertEqual([collectives.whole_size("alltoall", size, 4) for size in (1, 8, 4098)],
                         [16, 16, 4096])
        self.assertEqual(collectives.whole_size("allgather", 100, 3), 108)

    def test_who_has_them(self):
        names = compare.names_of(["private", "tcp"], None, "reduce_scatter")
        self.assertEqual(names, ["pith-private", "ompi", "ompi-ucx", "mpich", "pith-tcp",
                                 "ompi-tcp", "ompi-ucx-tcp", "mpich-tcp"])
        self.assertIn("gloo-ring", compare.names_of(["tcp"], None, "alltoall"))
        self.assertEqual(compare.names_of(["tcp"], "sockets-1", "allreduce"), ["sockets-1"])
        self.assertEqual(compare.names_of(["tcp"], "sockets-1", "alltoall"), [])

    def test_commands(self):
        asked = options(collective="alltoall", bin=pathlib.Path("/bin"))
        command = contenders.command_of("pith-tcp", asked, [8, 64], "/json")
        self.assertEqual(command[:3], ["/bin/seam_bench", "--collective", "alltoall"])
        asked.collective = "allreduce"
        self.assertNotIn("--collective", contenders.command_of("pith-tcp", asked, [8], "/json"))

    def test_folder(self):
        with tempfile.TemporaryDirectory() as folder, \
             contextlib.redirect_stderr(io.StringIO()):
            of_another = document() | {"collective": collectives.TITLES["reduce_scatter"]}
            path = result_set.write(pathlib.Path(folder), of_another, MACHINE)
            self.assertTrue(path.name.endswith("c-reduce-scatter"), path.name)


class Bound(unittest.TestCase):
    def results(self):
        results = compare.Results(["pith-tcp", "ompi-tcp", "sockets-1", "sockets-4"])
        times = {"pith-tcp": 20, "ompi-tcp": 30, "sockets-1": 15, "sockets-4": 10}
        for name, took in times.items():
            results.rounds[name][64] = [(took, (0, 0))]
        return results

    def test_the_fastest_is_the_bound(self):
        results = self.results()
        rows = compare.rows_of("tcp", results, [64], results.states()[0])
        self.assertEqual(rows[0]["bound_us"], 10)
        self.assertEqual(rows[0]["best_peer"], "ompi-tcp")  # the bound is none
        head, line, means = result_table.cells_of("tcp", rows)
        at = head.index("bound")
        self.assertEqual((line[at], means[at]), ("10.00", "0.50"))

    def test_sets_of_before_have_none(self):
        rows = [{"bytes": 64, "pith_us": 20, "peers_us": {}, "best_peer": None, "ratio": None}]
        self.assertNotIn("bound", result_table.cells_of("tcp", rows)[0])


if __name__ == "__main__":
    unittest.main()
