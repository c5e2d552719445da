"""What is tested inside the virtual machine of vm.sh. `Device`: ranks share rxe0. `Api`: the tests
of the C API over it. `TwoHosts`: rank 0 has rxeA, rank 1 rxeB, and a cable between them."""
import os
import re
import resource
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "netlab"))
from lab import program  # noqa: E402
from ranks import REMOTE_ERROR, Ranks  # noqa: E402

ENDLESS = 1_000_000  # calls; no test waits for so many
# An emulated machine loses packets when it is slow, and resends: seven times up to 4.3 s.
LOSS_LIMIT_S = 60
HEARTBEAT_S = 10  # PITH_HEARTBEAT


class Here:
    """Stands for a host of netlab: processes of this machine."""

    def start(self, command, environment, _name, **options):
        settings = {**os.environ, **environment}
        return subprocess.Popen([str(word) for word in command], env=settings, **options)


class Machine:
    """A laboratory of one machine: every host is this one."""

    def __len__(self):
        return 2

    def __getitem__(self, _):
        return Here()


def ranks_of(number, **settings):
    return Ranks(Machine(), [0] * number, {"PITH_TRANSPORT": "verbs", "PITH_HOST": "10.77.0.1",
                                           **settings})


def lock_little():
    """This process becomes one of nobody's, with the limit that many systems give."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    os.setgid(65534)
    os.setuid(65534)


def resources():
    """Queue pairs, regions and the like that processes have."""
    shown = subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True, check=True)
    return sorted(re.findall(r"(rxe\w*): (.*)", shown.stdout))


class Device(unittest.TestCase):
    def test_transport(self):
        before = resources()
        said = subprocess.check_output([program("test_transport"), "[verbs_device]"], text=True)
        self.assertNotIn("skipped", said)
        self.assertEqual(before, resources())

    def check_programs(self, transport):
        for name in ("all_reduce_perf", "all_gather_perf", "broadcast_perf", "reduce_scatter_perf",
                     "alltoall_perf"):
            for ranks in (2, 4):
                with self.subTest(program=name, ranks=ranks):
                    environment = {**os.environ, "PITH_TRANSPORT": transport,
                                   "PITH_HOST": "10.77.0.1"}
                    run = subprocess.run(
                        [program(name), "-b", "8", "-e", "512K", "-f", "16", "-n", "2", "-w", "1",
                         "--ranks", str(ranks)], env=environment, capture_output=True, text=True)
                    self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                    self.assertIn("Out of bounds values : 0 OK", run.stdout)

    def test_collectives_over_verbs(self):
        self.check_programs("verbs")

    def test_collectives_over_ucx(self):
        self.check_programs("ucx")

    def test_a_user_who_may_lock_little_memory(self):
        environment = {**os.environ, "PITH_HOST": "10.77.0.1", "PITH_LOG": "info"}

        def said_by(name, *options, **settings):
            run = subprocess.run([program(name), *options], env={**environment, **settings},
                                 preexec_fn=lock_little, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=200)
            return run.stdout

        said = said_by("pith-info", "--transports")
        for name in ("verbs", "ucx"):
            self.assertRegex(said, rf"{name} +not usable: .*64 KiB may be locked \(ulimit -l\)")
        once = ("--ranks", "2", "-b", "64K", "-e", "64K", "-n", "1", "-w", "1")
        self.assertIn("by tcp", said_by("all_reduce_perf", *once, PITH_TRANSPORT="^shm"))
        said = said_by("all_reduce_perf", *once, PITH_TRANSPORT="verbs")
        self.assertIn("verbs is not available", said)
        self.assertIn("ulimit -l", said)

    def test_a_killed_rank_is_lost_and_the_others_go_on(self):
        with ranks_of(3) as ranks:
            ranks.seconds("allreduce", 100_000)
            ranks.begin("allreduce", 100_000, ENDLESS)
            time.sleep(0.5)
            ranks.processes[2].send_signal(signal.SIGKILL)
            for answer in ranks.end(LOSS_LIMIT_S, [0, 1]).values():
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)
                self.assertIn("rank 2", answer["error"])
            ranks.shrink([0, 1])
            ranks.seconds("allreduce", 1_000_000, 2, [0, 1])

    def test_a_stopped_rank_is_not_lost(self):
        with ranks_of(2) as ranks:
            ranks.seconds("allreduce", 100_000)
            ranks.processes[1].send_signal(signal.SIGSTOP)
            ranks.begin("allreduce", 400_000, 3)
            time.sleep(6)
            ranks.processes[1].send_signal(signal.SIGCONT)
            for answer in ranks.end().values():
                self.assertEqual(answer["code"], 0, answer)
                self.assertTrue(answer["correct"])


class Api(unittest.TestCase):
    # [recovery]: among others ranks that are killed, and such as are stopped and given up.
    TAGS = ("calls", "uneven", "messages", "groups", "shrink", "aborts", "failure", "recovery")

    def test_over_verbs(self):
        before = resources()
        environment = {**os.environ, "PITH_TEST_LINK": "verbs", "PITH_TEST_SLOW": "8",
                       "PITH_HOST": "10.77.0.1"}
        for tag in self.TAGS:
            with self.subTest(tag=tag):
                run = subprocess.run([program("test_api"), f"[{tag}]"], env=environment,
                                     capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stdout[-4000:] + run.stderr[-4000:])
        self.assertEqual(before, resources())


class TwoHosts(unittest.TestCase):
    @staticmethod
    def environment(rank):
        devices = f"devices=rxe{'AB'[rank]}"
        return {"PITH_TRANSPORT": "verbs", "PITH_VERBS": f"{devices},mtu={2048 << rank}",
                "PITH_HOST": f"10.77.1.{rank + 1}"}

    def test_packets_cross_the_cable(self):
        def packets():
            return int(Path("/sys/class/net/vA/statistics/tx_packets").read_text())

        before = packets()
        with Ranks(Machine(), [0, 1], self.environment) as ranks:
            ranks.seconds("allreduce", 1_000_000, 3)
        self.assertGreater(packets() - before, 3 * 1_000_000 // 4096)

    # The last one, for the routes go with the cable.
    def test_the_cable_is_cut(self):
        with Ranks(Machine(), [0, 1], self.environment) as ranks:
            ranks.seconds("allreduce", 100_000)
            ranks.begin("allreduce", 100_000, ENDLESS)
            time.sleep(0.5)
            subprocess.run(["ip", "link", "set", "vA", "down"], check=True)
            start = time.monotonic()
            for answer in ranks.end(LOSS_LIMIT_S).values():
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)
                # Each loses the other; whose word comes first is what both say.
                self.assertRegex(answer["error"], "rank [01] is lost")
            self.assertLess(time.monotonic() - start, HEARTBEAT_S)
            for process in ranks.processes:
                process.kill()


if __name__ == "__main__":
    unittest.main()
