"""Pith between hosts: right everywhere, as fast as the links, and at a new speed when they change.

Times have sharp limits below and wide ones above: see test_lab.py."""
import os
import unittest

import case
from case import MBIT, Lab
from lab import BURST_BYTES_MIN
from ranks import Ranks

LINKS = ("switch", "veth")
COLLECTIVES = ("allreduce", "broadcast", "allgather")
FULL = bool(os.environ.get("PITH_TEST_FULL"))
SLACK = 1.5  # of the time that the link allows, for headers, start-up of streams and a busy machine


class Correctness(unittest.TestCase):
    def test_hosts_and_sizes(self):
        sizes = [4, 4096, 100_000, 1 << 20] + ([16 << 20] if FULL else [])
        for link in LINKS:
            for hosts in (2, 3, 4):
                with Lab(hosts, link) as lab, Ranks(lab) as ranks:
                    for collective in COLLECTIVES:
                        for size in sizes:
                            with self.subTest(link=link, hosts=hosts, call=collective, size=size):
                                ranks.seconds(collective, size, times=2)

    def test_several_ranks_a_host(self):
        with Lab(2) as lab, Ranks(lab, placement=[0, 1, 0, 1]) as ranks:
            for collective in COLLECTIVES:
                ranks.seconds(collective, 100_000, times=2)

    def test_compressed_by_host(self):
        for placement in ([0, 0, 1, 1], [0, 1, 0, 1, 1], [0, 1]):
            with Lab(2) as lab, Ranks(lab, placement=placement) as ranks:
                ranks.seconds("by_host", 400_000, times=2)

    def test_a_bad_network(self):
        with Lab(3, delay=0.005, rate=200 * MBIT, offload=False) as lab, Ranks(lab) as ranks:
            lab.set_jitter(0.002)
            lab.set_loss(0.005)
            for collective in COLLECTIVES:
                ranks.seconds(collective, 100_000, times=2)

    def test_data_cross_the_network(self):
        size = 1 << 20
        with Lab(2) as lab, Ranks(lab) as ranks:
            before = lab.sent_bytes(0)
            ranks.seconds("broadcast", size)
            self.assertGreater(lab.sent_bytes(0) - before, size)


class Locality(unittest.TestCase):
    """Who shares memory is who can attach to it, whatever the hosts are called."""
    SIZE = 1 << 20
    SETTINGS = {"PITH_TRANSPORT": "shm,tcp"}

    def test_two_hosts_of_one_name(self):
        for placement in ([0, 1], [0, 1, 0, 1]):
            with self.subTest(placement=placement):
                with Lab(2) as lab, Ranks(lab, placement, self.SETTINGS,
                                          ["twin"] * len(placement)) as ranks:
                    before = lab.sent_bytes(0)
                    ranks.seconds("broadcast", self.SIZE)
                    self.assertGreater(lab.sent_bytes(0) - before, self.SIZE)
                    for collective in (*COLLECTIVES, "by_host"):
                        ranks.seconds(collective, self.SIZE, times=2)

    def looped_bytes(self, names, settings):
        """What a host with a rank for each name sends to itself while they make a call."""
        with Lab(1) as lab, Ranks(lab, [0] * len(names), settings, names) as ranks:
            before = lab[0].sent_bytes("lo")
            ranks.seconds("broadcast", self.SIZE)
            return lab[0].sent_bytes("lo") - before

    def test_one_host_of_two_names(self):
        names = ["one", "other"]
        self.assertLess(self.looped_bytes(names, self.SETTINGS), self.SIZE / 10)
        self.assertGreater(self.looped_bytes(names, {}), self.SIZE)


class Rates(unittest.TestCase):
    def check(self, ranks, collective, size, wire_bytes, rate):
        """Some call takes about what `wire_bytes` take on a link, and none takes less.

        The first calls may find streams that still believe in an older rate."""
        least = (wire_bytes - 2 * BURST_BYTES_MIN) * 8 / rate
        most = SLACK * wire_bytes * 8 / rate
        seconds = []
        for _ in range(10):
            seconds += ranks.seconds(collective, size)
            self.assertGreater(seconds[-1], least)
            if seconds[-1] < most:
                return
        self.fail(f"{collective} of {size} bytes at {rate / MBIT} Mbit/s took {seconds} s, "
                  f"expected {least} to {most} s")

    def test_calls_take_as_long_as_the_link(self):
        size = 2_000_000
        for link in LINKS:
            with Lab(2, link, rate=100 * MBIT) as lab, Ranks(lab) as ranks:
                for collective in COLLECTIVES:
                    with self.subTest(link=link, call=collective):
                        self.check(ranks, collective, size, size, 100 * MBIT)

    def test_a_ring_uses_every_link_once(self):
        size = 2_000_000
        with Lab(4, "veth", rate=100 * MBIT) as lab:
            with Ranks(lab, environment={"PITH_ALGO": "allreduce:ring"}) as ranks:
                self.check(ranks, "allreduce", size, 2 * 3 * size // 4, 100 * MBIT)

    def test_a_host_sends_the_sum_of_its_ranks(self):
        size = 1 << 20
        with Lab(2) as lab:
            with Ranks(lab, [0, 0, 1, 1], {"PITH_TRANSPORT": "shm,tcp"}) as ranks:
                before = lab.sent_bytes(0)
                ranks.seconds("allreduce", size)
                sent = lab.sent_bytes(0) - before
        self.assertGreater(sent, size)
        self.assertLess(sent, 1.3 * size)  # a ring of the four ranks: 1.5

    def test_short_calls_cross_a_far_link_once(self):
        delay = 0.020
        with Lab(4, delay=delay) as lab, Ranks(lab) as ranks:
            for collective in ("allreduce", "allgather"):
                with self.subTest(call=collective):
                    seconds = ranks.seconds(collective, 256, times=5)
                    self.assertGreaterEqual(min(seconds), delay)
                    self.assertLess(min(seconds), 1.9 * delay)


if __name__ == "__main__":
    case.main()
