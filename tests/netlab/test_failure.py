"""What ranks are told when hosts and links fail, and how soon."""
import re
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
        """Three ranks are in the middle of calls when fail(lab, ranks) strikes the rank `lost`.
        The others are told, and go on without it."""
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
            ranks.shrink(survivors)
            for collective in ("allreduce", "broadcast", "allgather"):
                ranks.seconds(collective, 100_000, 2, survivors)
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


class OneLink(unittest.TestCase):
    """Nothing passes between two hosts, and both reach the third."""
    TIMEOUT_S = 3
    # A ring of three has every link in it.
    SETTINGS = {"PITH_TIMEOUT": str(TIMEOUT_S), "PITH_HEARTBEAT": str(HEARTBEAT_S),
                "PITH_ALGO": "allreduce:ring"}

    def cut(self, lab, ranks, one, other, limit_s):
        ranks.seconds("allreduce", 100_000)
        ranks.begin("allreduce", 100_000, ENDLESS)
        time.sleep(0.2)
        lab.set_loss(1, one, other)
        start = time.monotonic()
        answers = ranks.end(limit_s + SLACK_S)
        self.assertLess(time.monotonic() - start, limit_s + SLACK_S)
        for rank, answer in answers.items():
            self.assertEqual(answer["code"], REMOTE_ERROR, answer)
            self.assertRegex(answer["error"], rf"rank [{one}{other}]\b", f"rank {rank}")
        return answers

    def go_on(self, ranks, survivors, excluded=()):
        ranks.shrink(survivors, excluded)
        ranks.seconds("allreduce", 100_000, 2, survivors)

    def test_between_two_ranks(self):
        """All are alive to the control plane, and only time tells that calls do not go on."""
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            self.cut(lab, ranks, 1, 2, self.TIMEOUT_S + 1)  # a stall is reported every second
            self.go_on(ranks, [0, 1], excluded=[2])

    def test_to_the_root_of_the_control_tree(self):
        """Each takes the other one for dead, and the third believes whom it hears first."""
        # Else time may blame another one than is taken for dead a moment later.
        settings = {**self.SETTINGS, "PITH_TIMEOUT": str(10 * HEARTBEAT_S)}
        with Lab(3) as lab, Ranks(lab, environment=settings) as ranks:
            answers = self.cut(lab, ranks, 0, 2, HEARTBEAT_S)
            lost = int(re.search(r"rank ([02])\b", answers[1]["error"])[1])
            self.go_on(ranks, sorted({0, 1, 2} - {lost}))


if __name__ == "__main__":
    case.main()
