"""Which of a host's addresses ranks use: by default, as they are told, and over IPv6 alone."""
import os
import subprocess
import time
import unittest

import case
from lab import HAS_IPV6, Lab, program
from ranks import RankError, Ranks

# Where start-up must fail it shall do so soon.
SOON = {"PITH_INIT_TIMEOUT": "1"}


def add_wrong_way(host):
    """An interface that the system lists before eth0."""
    host.add_dead_end("wrong0", f"192.0.2.{host.number + 1}/24")


def add_bridge(host):
    host.add_dead_end("docker0", f"192.0.2.{host.number + 1}/24")


def add_second_network(lab):
    """Joins two hosts by an eth1 each, too."""
    first, second = lab
    first.ip("link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns",
             second.namespace)
    for host in lab:
        host.ip("addr", "add", f"10.78.0.{host.number + 1}/24", "dev", "eth1")
        host.ip("link", "set", "eth1", "up")
    while not all("LOWER_UP" in host.ip("link", "show", "eth1") and
                  "state UP" in host.ip("link", "show", "eth1") for host in lab):
        time.sleep(0.02)  # the kernel notices a link after a while


class Tables:
    """/etc/hosts of hosts by number, as `ip netns exec` puts it in place."""

    def __init__(self, lab, tables):
        self.files = {f"/etc/netns/{lab[number].namespace}/hosts": text
                      for number, text in tables.items()}

    def __enter__(self):
        for path, text in self.files.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as table:
                table.write(text)

    def __exit__(self, *_):
        for path in self.files:
            os.remove(path)
            os.rmdir(os.path.dirname(path))


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

    def check_names(self, lab, tables, family=""):
        """Ranks 0 and 1 on the first host, 2 on the second, as torchrun's variables have it."""
        port = 6000
        for table in tables:
            with self.subTest(table), Tables(lab, {0: f"{table} node1\n",
                                                   1: f"{lab[0].known_address} node1\n"}):
                port += 1
                processes = []
                for rank, host in enumerate((0, 0, 1)):
                    variables = {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2",
                                 "MASTER_ADDR": "node1", "MASTER_PORT": str(port),
                                 "PITH_SECRET": "sesame", "PITH_TRANSPORT": "tcp",
                                 "PITH_INIT_TIMEOUT": "10"}
                    if family:
                        variables["PITH_SOCKET_FAMILY"] = family
                    processes.append(lab[host].start(
                        [program("env_rank")], variables, text=True,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
                told = [process.communicate(timeout=60)[0] for process in processes]
                for rank, (process, text) in enumerate(zip(processes, told)):
                    self.assertEqual(process.returncode, 0, f"rank {rank}: {text}")
                    self.assertIn(f"rank {rank} of 3: sum 6", text)

    def test_a_name_that_stands_for_loopback_on_its_own_host(self):
        with Lab(2) as lab:
            lab[0].known_address = lab[0].address
            self.check_names(lab, ("127.0.0.1", "127.0.1.1", f"127.0.0.1 node1\n{lab[0].address}"))

    @unittest.skipUnless(HAS_IPV6, "no IPv6 here")
    def test_a_name_that_stands_for_loopback_over_ipv6(self):
        with Lab(2, ipv4=False) as lab:
            lab[0].known_address = lab[0].address6
            self.check_names(lab, ("::1", f"127.0.0.1 node1\n::1"), "AF_INET6")
        with Lab(2) as lab:
            lab[0].known_address = lab[0].address6
            self.check_names(lab, ("::1", "127.0.0.1"))

    def test_rails_share_what_is_sent(self):
        with Lab(2) as lab:
            add_second_network(lab)
            devices = ("eth0", "eth1")
            with Ranks(lab, environment={"PITH_RAILS": "2"}) as ranks:
                before = [lab[0].sent_bytes(device) for device in devices]
                ranks.seconds("allreduce", 16 << 20)
                sent = [lab[0].sent_bytes(device) - bytes_before
                        for device, bytes_before in zip(devices, before)]
            self.assertGreater(min(sent), 0.4 * sum(sent))
            self.check_refusal(lab, {**SOON, "PITH_RAILS": "3"},
                               r"PITH_RAILS is 3, and beside 10\.77\.0\.\d there are 1 interfaces")
        with Lab(2) as lab:
            for host in lab:
                add_wrong_way(host)
            self.check_refusal(lab, {**SOON, "PITH_RAILS": "2"},
                               r"rank 0 could not be reached at 192\.0\.2\.1:"
                               r"|rank 1 has not connected in time")  # whichever says it first

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
