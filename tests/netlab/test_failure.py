"""What ranks are told when hosts and links fail, and how soon."""
import signal
import subprocess
import time
import unittest

import case
from lab import Lab, program
from ranks import REMOTE_ERROR, RankError, Ranks

HEARTBEAT_S = 3
SLACK_S = 2  # for a busy machine
ENDLESS = 1_000_000  # calls; no test waits for so many


def has_heartbeat():
    settings = subprocess.run([program("pith-info"), "--settings"], capture_output=True, text=True)
    return "PITH_HEARTBEAT" in settings.stdout


class FailureCase(unittest.TestCase):
    def check(self, fail, lost, limit_s, environment=None):
        """Three ranks are in the middle of calls when fail(lab, ranks) strikes the rank `lost`."""
        with Lab(3) as lab, Ranks(lab, environment=environment) as ranks:
            ranks.seconds("allreduce", 1000)
            ranks.begin("allreduce", 1000, ENDLESS)
            time.sleep(0.2)
            fail(lab, ranks)
            start = time.monotonic()
            survivors = [rank for rank in range(3) if rank != lost]
            for rank, answer in ranks.end(limit_s + SLACK_S, survivors).items():
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)
                self.assertIn(f"rank {lost}", answer["error"], f"rank {rank}")
            self.assertLess(time.monotonic() - start, limit_s + SLACK_S)
            ranks.processes[lost].kill()


class Death(FailureCase):
    def test_a_process_dies(self):
        for lost in (0, 2):
            with self.subTest(lost=lost):
                self.check(lambda lab, ranks: ranks.processes[lost].send_signal(signal.SIGKILL),
                           lost, 1)


class Start(unittest.TestCase):
    def test_a_host_is_not_there(self):
        with Lab(3) as lab:
            lab.silence(2)
            with self.assertRaises(RankError) as caught:
                with Ranks(lab, environment={"PITH_INIT_TIMEOUT": "1"}):
                    pass
        failures = str(caught.exception).split("; ")
        for rank, words in enumerate(("rank 2 did not join", "rank 2 did not join",
                                      lab[0].address)):
            self.assertTrue(failures[rank].startswith(f"rank {rank}: code {REMOTE_ERROR}"),
                            failures[rank])
            self.assertIn(words, failures[rank])


@unittest.skipUnless(has_heartbeat(), "no PITH_HEARTBEAT yet: a vanished host is not noticed")
class Vanishing(FailureCase):
    SETTINGS = {"PITH_HEARTBEAT": str(HEARTBEAT_S)}

    def test_a_host_vanishes(self):
        for lost in (0, 1, 2):
            with self.subTest(lost=lost):
                self.check(lambda lab, ranks: lab.silence(lost), lost, HEARTBEAT_S, self.SETTINGS)

    def test_a_cable_is_cut(self):
        self.check(lambda lab, ranks: lab.unplug(1), 1, HEARTBEAT_S, self.SETTINGS)

    def test_a_short_silence_is_forgiven(self):
        with Lab(2) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            lab.silence(1)
            ranks.begin("allreduce", 1000)
            time.sleep(HEARTBEAT_S / 3)
            lab.heal(1)
            for answer in ranks.end().values():
                self.assertEqual(answer["code"], 0, answer)


if __name__ == "__main__":
    case.main()
