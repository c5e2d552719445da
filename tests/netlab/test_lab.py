"""The laboratory itself: what it says of its links is true, and nothing of it remains.

The machine that runs this may be busy, so times have sharp limits below (nothing is faster than
its link) and wide ones above, and of several measurements the best one counts."""
import json
import os
import subprocess
import sys
import time
import unittest

import case
from case import MBIT, Lab
from lab import BURST_BYTES_MIN, HAS_IPV6
from namespaces import is_alive, namespaces

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = [sys.executable, "-B", os.path.join(HERE, "probe.py")]
PORT = 5000
LINKS = ("switch", "veth")


class Transfer:
    """A TCP connection between two hosts; next() is the seconds of one transfer of `size` bytes."""

    def __init__(self, lab, size, times=50):
        sink = lab[1].start([*PROBE, "sink", lab[1].address, PORT], stdout=subprocess.PIPE,
                            text=True)
        sink.stdout.readline()
        self.process = lab[0].start([*PROBE, "send", lab[1].address, PORT, size, times],
                                    stdout=subprocess.PIPE, text=True)

    def next(self):
        return float(self.process.stdout.readline())


def start_echo(host, address=None):
    echo = host.start([*PROBE, "echo", address or host.address, PORT], stdout=subprocess.PIPE,
                      text=True)
    echo.stdout.readline()


def ping(lab, count, address=None):
    return json.loads(lab[0].run([*PROBE, "ping", address or lab[1].address, PORT, count]))


class Rates(unittest.TestCase):
    def check_rate(self, transfer, size, rate):
        """Some transfers that began under an older rate may go by, and slow ones."""
        least = (size - 2 * BURST_BYTES_MIN) * 8 / rate
        seconds = []
        for _ in range(12):
            seconds.append(transfer.next())
            if least <= seconds[-1] <= 1.25 * size * 8 / rate:
                return
        self.fail(f"{size} bytes at {rate / MBIT} Mbit/s took {seconds} s")

    def test_rate_and_its_change(self):
        size = 1_000_000
        for link in LINKS:
            with self.subTest(link=link), Lab(2, link, rate=100 * MBIT) as lab:
                transfer = Transfer(lab, size)
                self.check_rate(transfer, size, 100 * MBIT)
                lab.set_rate(20 * MBIT)
                self.check_rate(transfer, size, 20 * MBIT)
                lab.set_rate(200 * MBIT)
                self.check_rate(transfer, size, 200 * MBIT)


class Paths(unittest.TestCase):
    def check_delay(self, lab, round_trip, address=None):
        times = ping(lab, 20, address)
        self.assertGreaterEqual(min(times), round_trip)
        self.assertLess(min(times), round_trip + 0.005)

    def test_delay_and_its_change(self):
        with Lab(3, delay=0.010) as lab:
            start_echo(lab[1])
            self.check_delay(lab, 0.020)
            if HAS_IPV6:
                start_echo(lab[1], lab[1].address6)
                self.check_delay(lab, 0.020, lab[1].address6)
            lab.set_delay(0.030, 0, 1)
            self.check_delay(lab, 0.060)
            lab.set_delay(0.001, 2)
            self.check_delay(lab, 0.060)

    def test_loss(self):
        with Lab(2, offload=False) as lab:
            start_echo(lab[1])
            ping(lab, 1)  # neighbours know each other
            lab.set_loss(0.2)
            back = int(lab[0].run([*PROBE, "flood", lab[1].address, PORT, 500]))
            self.assertGreater(back, 256)  # 320 both ways through, less 6 standard deviations
            self.assertLess(back, 384)
            lab.set_loss(0)
            self.assertEqual(len(ping(lab, 20)), 20)

    def test_partition(self):
        for link in LINKS:
            with self.subTest(link=link), Lab(3, link) as lab:
                start_echo(lab[1])
                self.assertEqual(len(ping(lab, 2)), 2)
                for cut in (lab.silence, lab.unplug):
                    cut(1)
                    self.assertEqual(ping(lab, 1), [])
                    carrier = "LOWER_UP" in lab[1].ip("link", "show", "eth0")
                    self.assertEqual(carrier, cut == lab.silence)
                    lab.heal(1)
                    # The first may have to wait for the interface to notice.
                    self.assertTrue(any(ping(lab, 1) for _ in range(5)))


# A driver that says what it has built, and then waits to be ended.
DRIVER = """
import sys, time
sys.path.insert(0, {here!r})
from lab import Lab
with Lab(2, {link!r}) as lab:
    lab[0].start(["sleep", "1000"])
    print(lab.prefix, *(process.pid for process in lab.processes), flush=True)
    time.sleep(1000)
"""


class Removal(unittest.TestCase):
    def start(self, link):
        case.need(link)
        driver = subprocess.Popen([sys.executable, "-B", "-c", DRIVER.format(here=HERE, link=link)],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.stop, driver)
        prefix, *pids = driver.stdout.readline().split()
        return driver, prefix, [int(pid) for pid in pids]

    @staticmethod
    def stop(driver):
        driver.terminate()
        driver.wait(30)
        driver.stdout.close()

    def left_of(self, prefix):
        return [name for name in namespaces() if name.startswith(prefix)]

    def assert_ended(self, pids):
        limit = time.monotonic() + 10
        while any(map(is_alive, pids)) and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertFalse(any(map(is_alive, pids)))

    def test_after_a_signal_or_a_kill(self):
        for link in LINKS:
            with self.subTest(link=link):
                driver, prefix, pids = self.start(link)
                other, other_prefix, _ = self.start(link)
                driver.kill()
                driver.wait()
                self.assert_ended(pids)  # processes end at once, without any sweep
                self.assertTrue(self.left_of(prefix))
                with Lab(1, link):
                    self.assertEqual(self.left_of(prefix), [])
                    self.assertTrue(self.left_of(other_prefix))  # its owner lives
                other.terminate()  # which it takes for an end of the `with`
                other.wait(30)
                self.assertEqual(self.left_of(other_prefix), [])


if __name__ == "__main__":
    case.main()
