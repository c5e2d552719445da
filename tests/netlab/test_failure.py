"""What ranks are told when hosts and links fail, and how soon."""
import signal
import subprocess
import time
import unittest

import case
from lab import Lab, program
from ranks import REMOTE_ERROR, RankError, Ranks

HEARTBEAT_S = 2
SLACK_S = 2  # for a busy machine
ENDLESS = 1_000_000  # calls; no test waits for so many
NO_RECONNECT = {"PITH_RECONNECT": "never"}


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
        for lost in (0, 2):
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


class Resets(unittest.TestCase):
    """What a router does that has forgotten its connections: they are reset, and all ranks live."""

    def reset(self, host):
        """How many connections of the host were; their other ends hear of it at once."""
        return len(host.run(["ss", "-K", "-tnH", "state", "established"]).splitlines())

    def test_calls_go_on(self):
        for environment in ({}, {"PITH_ENCRYPT": "1"}):
            with self.subTest(environment), Lab(3) as lab:
                with Ranks(lab, environment=environment) as ranks:
                    ranks.seconds("allreduce", 1000)
                    if self.reset(lab[1]) == 0:
                        self.skipTest("the kernel does not let root end connections (ss -K)")
                    for size, calls in ((8, 20_000), (100_000, 400), (16 << 20, 6)):
                        ranks.begin("allreduce", size, calls)
                        for host in (0, 1, 2, 1):
                            time.sleep(0.1)
                            self.reset(lab[host])
                        for rank, answer in ranks.end().items():
                            self.assertEqual(answer["code"], 0, f"rank {rank}: {answer}")
                            self.assertTrue(answer["correct"])
                    # Nobody is in a call: the next one finds it.
                    self.reset(lab[0])
                    ranks.seconds("allreduce", 100_000)

    def test_what_a_call_has_sent_arrives_after_its_end(self):
        """The sender is in no call when the connection breaks, nor later."""
        with Lab(2) as lab, Ranks(lab) as ranks:
            ranks.seconds("broadcast", 1000)
            lab.set_delay(0.3)
            ranks.begin("broadcast", 10_000)
            self.assertEqual(ranks.answer(0, 10)["code"], 0)  # the bytes are on their way
            if self.reset(lab[1]) == 0:
                self.skipTest("the kernel does not let root end connections (ss -K)")
            answer = ranks.answer(1, 15)
            self.assertEqual(answer["code"], 0, answer)
            self.assertTrue(answer["correct"])
            lab.set_delay(0)
            ranks.seconds("allreduce", 100_000)

    def test_the_end_of_a_process_is_still_told_at_once(self):
        with Lab(3) as lab, Ranks(lab) as ranks:
            ranks.seconds("allreduce", 1000)
            ranks.begin("allreduce", 1000, ENDLESS)
            self.reset(lab[2])
            time.sleep(0.2)
            ranks.processes[2].send_signal(signal.SIGKILL)
            for answer in ranks.end(1 + SLACK_S, [0, 1]).values():
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)
                self.assertIn("rank 2", answer["error"])

    def test_where_none_is_made_anew_it_is_the_end(self):
        with Lab(2) as lab, Ranks(lab, environment=NO_RECONNECT) as ranks:
            ranks.begin("allreduce", 1000, ENDLESS)
            time.sleep(0.2)
            if self.reset(lab[0]) == 0:
                self.skipTest("the kernel does not let root end connections (ss -K)")
            for answer in ranks.end(1 + SLACK_S).values():
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)


class OneLink(unittest.TestCase):
    """Nothing passes between two hosts, and both reach the third."""
    # A ring of three has every link in it.
    SETTINGS = {"PITH_TIMEOUT": "0", "PITH_HEARTBEAT": str(HEARTBEAT_S),
                "PITH_ALGO": "allreduce:ring"}

    def check_told(self, ranks, one, other, limit_s):
        start = time.monotonic()
        answers = ranks.end(limit_s + SLACK_S)
        self.assertLess(time.monotonic() - start, limit_s + SLACK_S)
        for rank, answer in answers.items():
            self.assertEqual(answer["code"], REMOTE_ERROR, answer)
            self.assertRegex(answer["error"], rf"rank [{one}{other}]\b", f"rank {rank}")
        return answers

    def cut(self, lab, ranks, one, other, limit_s, size=100_000):
        ranks.seconds("allreduce", size)
        ranks.begin("allreduce", size, ENDLESS)
        time.sleep(0.2)
        lab.set_loss(1, one, other)
        return self.check_told(ranks, one, other, limit_s)

    def check_dead(self, answers, one, other):
        for answer in answers.values():
            self.assertIn(f"the link between rank {one} and rank {other} is dead",
                          answer["error"])

    def go_on(self, ranks, survivors, excluded=()):
        ranks.shrink(survivors, excluded)
        ranks.seconds("allreduce", 100_000, 2, survivors)

    def go_on_by_themselves(self, ranks, survivors, limit_s):
        """All shrink, and nobody says who is to be left out."""
        start = time.monotonic()
        line = "shrink " + ",".join(map(str, survivors))
        for rank in range(len(ranks)):
            ranks.tell(rank, line)
        for rank, answer in ranks.end(limit_s + SLACK_S).items():
            if rank in survivors:
                self.assertEqual((answer["code"], answer["correct"]), (0, True), answer)
            else:
                self.assertEqual(answer["code"], REMOTE_ERROR, answer)
                self.assertIn("is left out of the new communicator", answer["error"])
        self.assertLess(time.monotonic() - start, limit_s + SLACK_S)
        ranks.seconds("allreduce", 100_000, 2, survivors)

    def test_between_two_ranks(self):
        """All are alive to the control plane, and time does not tell either."""
        for size in (1000, 64 << 20):
            with self.subTest(size=size), Lab(3) as lab:
                with Ranks(lab, environment=self.SETTINGS) as ranks:
                    answers = self.cut(lab, ranks, 1, 2, 1.5 * HEARTBEAT_S, size)
                    self.check_dead(answers, 1, 2)
                    self.go_on_by_themselves(ranks, [0, 1], 0)

    def test_the_program_may_choose_who_goes_on(self):
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            self.cut(lab, ranks, 1, 2, 1.5 * HEARTBEAT_S)
            self.go_on(ranks, [0, 2], excluded=[1])

    def test_between_two_hosts_of_several_ranks(self):
        """The first pair that finds out ends the call for all others."""
        with Lab(3) as lab:
            with Ranks(lab, [0, 1, 1, 2, 2], environment=self.SETTINGS) as ranks:
                ranks.seconds("allreduce", 100_000)
                ranks.begin("allreduce", 100_000, ENDLESS)
                time.sleep(0.2)
                lab.set_loss(1, 1, 2)
                answers = ranks.end(1.5 * HEARTBEAT_S + SLACK_S)
                for answer in answers.values():
                    self.assertRegex(answer["error"],
                                     "the link between rank [12] and rank [34] is dead")
                self.go_on_by_themselves(ranks, [0, 1, 2], 2 * HEARTBEAT_S)

    def test_while_nobody_calls(self):
        """The kernels have found out by the next call."""
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            ranks.seconds("allreduce", 100_000)
            lab.set_loss(1, 1, 2)
            time.sleep(1.5 * HEARTBEAT_S + SLACK_S)
            ranks.begin("allreduce", 100_000)
            self.check_dead(self.check_told(ranks, 1, 2, 1), 1, 2)

    def test_while_only_one_waits(self):
        """The other end has no call, and nothing of the one that waits is on its way."""
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            ranks.seconds("allreduce", 100_000)
            ranks.begin("allreduce", 100_000, ranks=[0, 2])
            time.sleep(0.5)
            lab.set_loss(1, 1, 2)
            start = time.monotonic()
            for answer in ranks.end(1.5 * HEARTBEAT_S + SLACK_S, [0, 2]).values():
                self.assertIn("the link between rank 1 and rank 2 is dead", answer["error"])
            self.assertLess(time.monotonic() - start, 1.5 * HEARTBEAT_S + SLACK_S)

    def test_a_short_cut_is_forgiven(self):
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            ranks.seconds("allreduce", 100_000)
            lab.set_loss(1, 1, 2)
            ranks.begin("allreduce", 100_000)
            time.sleep(HEARTBEAT_S / 3)
            lab.set_loss(0, 1, 2)
            for answer in ranks.end().values():
                self.assertEqual(answer["code"], 0, answer)

    def stop(self, lab, ranks, size, times, moved_bytes):
        """Rank 2 stands still for a while once so much has been sent, and goes on."""
        ranks.seconds("allreduce", 1000)
        before = lab.sent_bytes(0)
        ranks.begin("broadcast", size, times)
        while lab.sent_bytes(0) - before < moved_bytes:
            time.sleep(0.01)
        ranks.processes[2].send_signal(signal.SIGSTOP)
        with self.assertRaises(RankError, msg="a rank was told something"):
            ranks.end(3 * HEARTBEAT_S, [0])
        ranks.processes[2].send_signal(signal.SIGCONT)
        for answer in ranks.end().values():
            self.assertEqual((answer["code"], answer["correct"]), (0, True), answer)

    def test_a_stopped_process_is_no_dead_link(self):
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            self.stop(lab, ranks, 1000, 1000, 200_000)

    def test_a_stopped_process_has_no_room_left(self):
        """Its kernel answers that, ever more rarely."""
        with Lab(3, rate=800e6) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            self.stop(lab, ranks, 192 << 20, 1, 20 << 20)

    def test_to_the_root_of_the_control_tree(self):
        """Each takes the other one for dead, and the third believes whom it hears first."""
        with Lab(3) as lab, Ranks(lab, environment=self.SETTINGS) as ranks:
            self.cut(lab, ranks, 0, 2, HEARTBEAT_S)
            # The data connections may have been quicker to tell that there is no link.
            until = time.monotonic() + HEARTBEAT_S + SLACK_S
            while not (failed := ranks.failed(1)) and time.monotonic() < until:
                time.sleep(0.1)
            self.assertIn(failed, ([0], [2]))
            self.go_on(ranks, sorted({0, 1, 2} - set(failed)))


if __name__ == "__main__":
    # Heartbeats go by, and there is time enough for a busy machine.
    case.main(at_once=3)
