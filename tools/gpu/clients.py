#!/usr/bin/env python3
"""Clients of NCCL over Pith's libnccl.so.2: ranks in processes on one GPU, which check themselves.

clients.py --library LIBNCCL --json FILE [CHECK...] runs the checks one by one, each in processes
of its own with a limit, so that one that hangs costs no more, and writes what became of each.
--other names NVIDIA's library, for what is to be served by that.
--device cpu tries the checks themselves where no GPU is: over gloo, without any NCCL.
"""
import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import typing

LEAST_S = 15  # a check needs more than the start of Python and CUDA
ON_CPU_S = 200  # nobody waits for a GPU there


@dataclasses.dataclass
class Check:
    where: str  # module of this folder, and its function
    ranks: int = 2
    variables: dict = dataclasses.field(default_factory=dict)
    limit_s: int = 45
    on_cpu: bool = True
    bound: bool = False  # PyTorch's group knows its device from the beginning
    by_other: bool = False
    says: str = ""  # what the library has to log

    @property
    def module(self):
        return self.where.split(".")[0]

    @property
    def needs(self):
        return self.module.split("_")[0]


def compressed(spec, types="f32"):
    spec = f"{spec},types={types},min=64K,bypass=never"
    return {"variables": {"PITH_COMPRESS": spec}, "says": "is compressed from now on",
            "on_cpu": False, "limit_s": 60}


# The most telling first: time may end before they do.
CHECKS = {
    "sums": Check("torch_checks.sums"),
    "ddp": Check("torch_checks.ddp"),
    "ddp compressed": Check("torch_checks.ddp_compressed", **compressed("topk:density=0.01")),
    "graphs": Check("torch_checks.graphs", on_cpu=False),
    "moves": Check("torch_checks.moves", 4),
    "fsdp": Check("torch_checks.fsdp"),
    "jax": Check("jax_checks.collectives", limit_s=60),
    "compiled graphs": Check("torch_checks.compiled_graphs", limit_s=70, on_cpu=False),
    "cupy": Check("cupy_checks.sums", on_cpu=False),
    "ddp of 4": Check("torch_checks.ddp", 4),
    "fsdp of 4": Check("torch_checks.fsdp", 4),
    "abort": Check("torch_checks.abort", on_cpu=False),
    "splits": Check("torch_checks.splits", 4, on_cpu=False, bound=True),
    "residuals": Check("torch_checks.residuals_f32", **compressed("topk:density=0.01")),
    "residuals bf16": Check("torch_checks.residuals_bf16",
                            **compressed("ar-topk:density=0.001", "bf16")),
    "residuals f16": Check("torch_checks.residuals_f16", **compressed("topk:density=0.001", "f16")),
    "groups": Check("torch_checks.groups", 4),
    "compiled": Check("torch_checks.compiled", limit_s=70),
    "ddp bf16": Check("torch_checks.ddp_bf16"),
    "ddp compressed f16": Check("torch_checks.ddp_compressed_f16",
                                **compressed("ar-topk:density=0.001", "f16")),
    "cupy backend": Check("cupy_checks.backend", on_cpu=False),
    "cupy alone": Check("cupy_checks.alone", 1, on_cpu=False),
    "null stream": Check("torch_checks.null_stream", on_cpu=False),
    "fsdp1": Check("torch_checks.fsdp1", on_cpu=False),
    "jax of 4": Check("jax_checks.collectives", 4, limit_s=60),
    # Of the part "fallback": only where it is asked for.
    "fallback": Check("torch_checks.served_by_other", on_cpu=False, by_other=True),
}


def read_output(folder, rank):
    with open(os.path.join(folder, f"rank{rank}"), encoding="utf-8", errors="replace") as file:
        return file.read()


@dataclasses.dataclass
class World:
    """What a rank knows."""
    rank: int
    size: int
    port: int
    device: str
    bound: bool
    ensure_served: typing.Callable[[], None]  # by Pith, in this rank

    @property
    def on_gpu(self):
        return self.device == "cuda"

    def shared_path(self, name):
        return os.path.join(os.environ["CLIENT_FOLDER"], name)


def ensure_served_by_us(check, arguments):
    """The library is loaded under NCCL's name, has been asked for something, and said so."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        loaded = {line.split()[-1] for line in file if "libnccl.so" in line}
    ours = os.path.realpath(arguments.library)
    assert ours in loaded, f"loaded: {sorted(loaded)}"
    # JAX and CuPy load NVIDIA's file by its path, and then ask for the name, which is ours.
    allowed = {ours} | ({os.path.realpath(arguments.other)} if check.by_other else set())
    assert check.needs in ("jax", "cupy") or loaded == allowed, f"loaded: {sorted(loaded)}"
    said = read_output(os.environ["CLIENT_FOLDER"], arguments.rank)
    assert "answered by Pith" in said, "Pith was not asked"
    says = f"is served by {arguments.other}" if check.by_other else check.says
    assert says in said, f"the log does not say: {says}"


def run_rank(check, arguments):
    def ensure_served():
        if arguments.device == "cuda":
            ensure_served_by_us(check, arguments)
    world = World(arguments.rank, check.ranks, int(os.environ["MASTER_PORT"]), arguments.device,
                  check.bound, ensure_served)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    module = importlib.import_module(check.module)
    with module.joined(world):
        getattr(module, check.where.split(".")[1])(world)
        ensure_served()


def environment_of(check, arguments, rank, port, folder):
    variables = dict(os.environ, CLIENT_FOLDER=folder, PITH_TIMEOUT="20", PYTHONUNBUFFERED="1")
    # As torchrun sets them.
    variables.update(RANK=str(rank), WORLD_SIZE=str(check.ranks), LOCAL_RANK=str(rank),
                     LOCAL_WORLD_SIZE=str(check.ranks), MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=str(port))
    # Nobody but the check ends a broken group; no process outlives its rank; room for all ranks.
    variables.update(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCHINDUCTOR_COMPILE_THREADS="1",
                     XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if arguments.device == "cuda":
        variables.update(LD_PRELOAD=arguments.library, NCCL_DEBUG="INFO", **check.variables)
    else:
        variables.update(JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1")
    if check.by_other:
        # NVIDIA's takes no two ranks of a host on one device.
        variables.update(PITH_NCCL_FALLBACK=arguments.other, NCCL_HOSTID=f"host{rank}",
                         NCCL_SOCKET_IFNAME="lo")
    return variables


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(name, arguments, folder):
    check, ranks, port = CHECKS[name], [], free_port()
    for rank in range(check.ranks):
        command = [sys.executable, os.path.abspath(__file__), "--rank", str(rank),
                   "--device", arguments.device]
        for flag in ("library", "other"):
            if getattr(arguments, flag):
                command += ["--" + flag, getattr(arguments, flag)]
        with open(os.path.join(folder, f"rank{rank}"), "wb") as out:
            ranks.append(subprocess.Popen(
                command + [name], stdout=out, stderr=subprocess.STDOUT,
                env=environment_of(check, arguments, rank, port, folder)))
    return ranks


def wait_for(ranks, limit_s):
    """Whether each of them hung, and had to be ended."""
    limit = time.time() + limit_s
    while time.time() < limit and any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            limit = min(limit, time.time() + 3)  # the others will not end by themselves
        time.sleep(0.05)
    hanging = [rank.poll() is None for rank in ranks]
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
        rank.wait()
    return hanging


def last_error(text):
    lines = [line for line in text.strip().splitlines() if " NCCL INFO " not in line]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["?"])[-1][:200]


def run(name, arguments, limit_s):
    """"ok", or what was wrong."""
    with tempfile.TemporaryDirectory(prefix="client_") as folder:
        ranks = start(name, arguments, folder)
        hanging = wait_for(ranks, limit_s)
        for number, rank in enumerate(ranks):
            if rank.returncode == 0 or hanging[number]:
                continue
            text = read_output(folder, number)
            print(text[-4000:], flush=True)
            return f"FAILED on rank {number}: {last_error(text)}"
        return "HANGS" if any(hanging) else "ok"


def unable(check, arguments):
    """Why the check cannot be made here, if so."""
    if arguments.device == "cpu" and not check.on_cpu:
        return "skipped: needs a GPU"
    if check.by_other and not arguments.other:
        return "skipped: no other libnccl.so.2"
    if importlib.util.find_spec(check.needs) is None:
        return f"skipped: no {check.needs}"
    return None


def run_all(arguments):
    names = arguments.checks or [name for name, check in CHECKS.items() if not check.by_other]
    end = time.time() + arguments.seconds
    result = {}
    for name in names:
        begin = time.time()
        fate = unable(CHECKS[name], arguments)
        if fate is None and end - begin < LEAST_S:
            fate = "not reached"
        if fate is None:
            most_s = CHECKS[name].limit_s if arguments.device == "cuda" else ON_CPU_S
            limit_s = min(most_s, end - begin - 3)
            fate = run(name, arguments, limit_s)
        result[name] = fate
        print(f"client {name}: {fate} ({time.time() - begin:.1f} s)", flush=True)
        if arguments.json:
            write_json(result, arguments.json)
    return 0 if all(fate == "ok" or fate.startswith("skipped") for fate in result.values()) else 1


def write_json(result, path):
    """At once, or not at all: time may end while it is written."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="Pith's libnccl.so.2")
    parser.add_argument("--other", help="NVIDIA's libnccl.so.2")
    parser.add_argument("--json", help="where to write what became of each check")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=600, help="for all checks together")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.checks if name not in CHECKS]
    if unknown:
        parser.error(f"unknown check '{unknown[0]}'")
    if arguments.device == "cuda" and not arguments.library:
        parser.error("--library is needed on a GPU")
    if arguments.rank is not None:
        run_rank(CHECKS[arguments.checks[0]], arguments)
        return 0
    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
