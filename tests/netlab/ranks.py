"""Ranks of Pith on the hosts of a laboratory, which do what the test says.

    with Ranks(lab) as ranks:                       # one rank a host
        seconds = ranks.seconds("allreduce", 1 << 20)
"""
import json
import select
import subprocess

from lab import program

START_LIMIT_S = 60
CALL_LIMIT_S = 60
LEAVE_LIMIT_S = 20
# The code of a lost peer in pith.h.
REMOTE_ERROR = 6


class RankError(Exception):
    """A rank failed, was wrong or did not answer."""


class Ranks:
    """Rank r runs on host `placement[r]`; one a host where that is not given. `environment` is
    that of all, or a function of the rank; `names` are what the ranks find their hosts called, each
    its own where that is not given.

    Only TCP is between them, unless the environment says more."""

    def __init__(self, lab, placement=None, environment=None, names=None):
        self.placement = list(range(len(lab))) if placement is None else list(placement)
        size = len(self.placement)
        self.processes = []
        self.id = b""
        for rank, host in enumerate(self.placement):
            own = environment(rank) if callable(environment) else environment or {}
            settings = {"PITH_TRANSPORT": "tcp", **own}
            self.processes.append(lab[host].start(
                [program("netlab_rank"), rank, size], settings, names and names[rank], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def __enter__(self):
        answer = self.answer(0, START_LIMIT_S)
        if "id" not in answer:
            raise RankError(f"rank 0: {answer}")
        self.id = bytes.fromhex(answer["id"])
        for rank in range(1, len(self.processes)):
            self.tell(rank, answer["id"])
        answers = self.end(START_LIMIT_S)
        failures = [f"rank {rank}: code {answer['code']}: {answer['error']}"
                    for rank, answer in answers.items() if "ready" not in answer]
        if failures:
            raise RankError("; ".join(failures))
        return self

    def __exit__(self, kind, *_):
        for process in self.processes:
            process.stdin.close()
        for rank, process in enumerate(self.processes):
            try:
                process.wait(0 if kind else LEAVE_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                if not kind:
                    raise RankError(f"rank {rank} did not leave within {LEAVE_LIMIT_S} s")

    def __len__(self):
        return len(self.processes)

    def tell(self, rank, line):
        self.processes[rank].stdin.write(line + "\n")
        self.processes[rank].stdin.flush()

    def answer(self, rank, limit_s):
        # One line a command, so nothing can be hidden in the stream's buffer.
        pipe = self.processes[rank].stdout
        if not select.select([pipe], [], [], limit_s)[0]:
            raise RankError(f"rank {rank} did not answer within {limit_s} s")
        line = pipe.readline()
        if not line:
            raise RankError(f"rank {rank} ended")
        return json.loads(line)

    def begin(self, collective, size, times=1, ranks=None):
        for rank in range(len(self)) if ranks is None else ranks:
            self.tell(rank, f"{collective} {size} {times}")

    def end(self, limit_s=CALL_LIMIT_S, ranks=None):
        """The answers by rank, errors included."""
        return {rank: self.answer(rank, limit_s)
                for rank in (range(len(self)) if ranks is None else ranks)}

    def seconds(self, collective, size, times=1, ranks=None):
        """The duration of each call, which is that of its slowest rank; the data were right."""
        self.begin(collective, size, times, ranks)
        answers = self.end(ranks=ranks)
        for rank, answer in answers.items():
            if answer["code"] != 0 or not answer["correct"]:
                raise RankError(f"{collective} of {size} bytes, rank {rank}: {answer}")
        return [max(calls) for calls in zip(*(answer["seconds"] for answer in answers.values()))]

    def failed(self, rank):
        """Who is dead for all that this rank knows."""
        self.tell(rank, "failed")
        return self.answer(rank, CALL_LIMIT_S)["failed"]

    def shrink(self, survivors, excluded=()):
        """The survivors go on by themselves, in this order; further calls are theirs alone."""
        line = " ".join(["shrink", *(",".join(map(str, ranks)) for ranks in (survivors, excluded))])
        for rank in survivors:
            self.tell(rank, line)
        for rank, answer in self.end(ranks=survivors).items():
            if answer["code"] != 0 or not answer["correct"]:
                raise RankError(f"shrink to {survivors}, rank {rank}: {answer}")
