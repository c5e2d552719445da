"""Which of a host's addresses ranks use: by default, as they are told, and over IPv6 alone."""
import unittest

import case
from lab import HAS_IPV6, Lab
from ranks import RankError, Ranks

# Where start-up must fail it shall do so soon.
SOON = {"PITH_INIT_TIMEOUT": "1"}


def add_wrong_way(host):
    """An interface that the system lists before eth0."""
    host.add_dead_end("wrong0", f"192.0.2.{host.number + 1}/24")


def add_bridge(host):
    host.add_dead_end("docker0", f"192.0.2.{host.number + 1}/24")


class Interfaces(unittest.TestCase):
    def check_start(self, lab, environment, root):
        with Ranks(lab, environment=environment) as ranks:
            self.assertIn(root.encode(), ranks.id)
            ranks.seconds("allreduce", 10_000)

    def check_refusal(self, lab, environment, words):
        with self.assertRaisesRegex(RankError, words), Ranks(lab, environment=environment):
            pass

    def test_bridges_of_containers_are_passed_over(self):
        with Lab(2, prepare=add_bridge) as lab:
            self.check_start(lab, {}, lab[0].address)

    def test_the_interface_named_is_used(self):
        with Lab(3, prepare=add_wrong_way) as lab:
            for wish in ("eth", "=eth0", "^wrong", "^=wrong0"):
                with self.subTest(PITH_IFNAME=wish):
                    self.check_start(lab, {"PITH_IFNAME": wish}, lab[0].address)
            for wish in ("wrong", "^eth"):
                with self.subTest(PITH_IFNAME=wish):
                    self.check_refusal(lab, {**SOON, "PITH_IFNAME": wish}, "192.0.2.1")
            self.check_refusal(lab, {"PITH_IFNAME": "ib"},
                               r"PITH_IFNAME is .*ib.* eth0 \(10.77.0.1\)")

    def test_all_follow_the_root(self):
        with Lab(3, prepare=add_wrong_way) as lab:
            self.check_start(lab, lambda rank: {"PITH_IFNAME": "eth0"} if rank == 0 else {},
                             lab[0].address)
            self.check_start(lab, lambda rank: {"PITH_HOST": lab[0].address} if rank == 0 else {},
                             lab[0].address)

    @unittest.skipUnless(HAS_IPV6, "no IPv6 here")
    def test_ipv6(self):
        with Lab(3, ipv4=False) as lab:
            self.check_start(lab, {}, f"[{lab[0].address6}]:")
            self.check_refusal(lab, {"PITH_SOCKET_FAMILY": "AF_INET", "PITH_IFNAME": "eth0"},
                               f"PITH_SOCKET_FAMILY is .*AF_INET.*{lab[0].address6}")
        with Lab(2) as lab:
            self.check_start(lab, {"PITH_SOCKET_FAMILY": "AF_INET6"}, f"[{lab[0].address6}]:")

    def test_ports(self):
        with Lab(2) as lab:
            with Ranks(lab, environment={"PITH_PORT_RANGE": "7000-7003"}) as ranks:
                ranks.seconds("allreduce", 1000)
                # The higher rank calls the lower one.
                connections = lab[0].run(["ss", "-Htn"]).splitlines()
                ports = {int(line.split()[3].rpartition(":")[2]) for line in connections}
                self.assertTrue(ports)
                self.assertLessEqual(ports, set(range(7000, 7004)))


if __name__ == "__main__":
    case.main()
