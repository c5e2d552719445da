"""What the tests of the laboratory itself run on its hosts: probe.py MODE ARGUMENTS.

    sink ADDRESS PORT               takes one TCP connection to its end
    send ADDRESS PORT BYTES TIMES   prints the seconds of each transfer of BYTES, acknowledged
    echo ADDRESS PORT               answers datagrams
    ping ADDRESS PORT COUNT         prints the round-trip time of each datagram answered in 1 s
    flood ADDRESS PORT COUNT        sends datagrams and prints how many came back
"""
import json
import socket
import sys
import time

DATAGRAM_BYTES = 64
PIECE_BYTES = 1 << 16


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def sink(address, port):
    with socket.create_server((address, port), family=family_of(address)) as server:
        print("ready", flush=True)
        peer, _ = server.accept()
    with peer, peer.makefile("rb") as stream:
        while size := stream.read(8):
            left = int.from_bytes(size, "big")
            while left:
                left -= len(stream.read(min(left, PIECE_BYTES)))
            peer.sendall(b".")


def send(address, port, size, times):
    piece = bytes(PIECE_BYTES)
    with socket.create_connection((address, port)) as peer:
        for _ in range(times):
            start = time.monotonic()
            peer.sendall(size.to_bytes(8, "big"))
            for left in range(size, 0, -PIECE_BYTES):
                peer.sendall(piece[:left])
            peer.recv(1)
            print(time.monotonic() - start, flush=True)


def echo(address, port):
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as own:
        own.bind((address, port))
        print("ready", flush=True)
        while True:
            data, sender = own.recvfrom(2048)
            own.sendto(data, sender)


def ping(address, port, count):
    times = []
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as own:
        own.settimeout(1)
        for number in range(count):
            start = time.monotonic()
            own.sendto(number.to_bytes(DATAGRAM_BYTES, "big"), (address, port))
            try:
                while int.from_bytes(own.recv(2048), "big") != number:
                    pass
            except TimeoutError:
                continue
            times.append(time.monotonic() - start)
    print(json.dumps(times))


def flood(address, port, count):
    back = 0
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as own:
        # Few at once, so that no queue on the way is ever full.
        for _ in range(0, count, 10):
            for _ in range(10):
                own.sendto(bytes(DATAGRAM_BYTES), (address, port))
            own.settimeout(0.05)
            try:
                for _ in range(10):
                    own.recv(2048)
                    back += 1
            except TimeoutError:
                pass
    print(back)


MODES = {"sink": sink, "send": send, "echo": echo, "ping": ping, "flood": flood}

if __name__ == "__main__":
    MODES[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
