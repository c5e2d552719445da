"""Who is compared, in which cases, and the command that starts each."""
import os
import shutil
from typing import NamedTuple

import peer_programs

TUNED = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm {} " \
        "--mca coll_tuned_allreduce_algorithm_segmentsize 131072"
UCX = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS={}"
TCP = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"

# name: (program, options of mpirun or of the program); of a peer's own program: (its name in
# peer_programs, its environment)
CONTENDERS = {
    "pith-registered": ("seam_bench", "--transport shm --memory registered"),
    "pith-private": ("seam_bench", "--transport shm --memory private"),
    "pith-tcp": ("seam_bench", "--transport tcp --memory private"),
    "pith-threads": ("seam_bench", "--transport local --memory private --threads"),
    "ompi": ("openmpi_bench", ""),
    "ompi-alg3": ("openmpi_bench", TUNED.format(3)),  # recursive doubling
    "ompi-alg5": ("openmpi_bench", TUNED.format(5)),  # segmented ring
    "ompi-alg6": ("openmpi_bench", TUNED.format(6)),  # Rabenseifner
    "ompi-ucx": ("openmpi_bench", UCX.format("posix,cma,self")),
    "ompi-ucx-alg5": ("openmpi_bench", UCX.format("posix,cma,self") + " " + TUNED.format(5)),
    "ompi-tcp": ("openmpi_bench", TCP),
    "ompi-tcp-alg5": ("openmpi_bench", TCP + " " + TUNED.format(5)),
    "ompi-ucx-tcp": ("openmpi_bench", UCX.format("tcp,self") + " -x UCX_NET_DEVICES=lo"),
    "mpich": ("mpich_bench", ""),
    "mpich-tcp": ("mpich_bench", "-genv UCX_TLS tcp,self -genv UCX_NET_DEVICES lo"),
    "gloo-ring": ("gloo_bench", "--algorithm ring"),
    "gloo-hd": ("gloo_bench", "--algorithm halving_doubling"),
    "gloo-threads": ("gloo_bench", "--algorithm ring --threads"),
    "sockets-1": ("socket_exchange", "--streams 1"),
    "sockets-2": ("socket_exchange", "--streams 2"),
    "sockets-4": ("socket_exchange", "--streams 4"),
    "ucc": ("ucc", ""),
    "ucc-tcp": ("ucc", "UCC_TLS=ucp UCX_TLS=tcp,self UCX_NET_DEVICES=lo"),
    "oneccl": ("oneccl", ""),
    "oneccl-tcp": ("oneccl", "CCL_ATL_TRANSPORT=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo"),
}
MPI_PROGRAMS = ("openmpi_bench", "mpich_bench")
SHM_PEERS = ["ompi", "ompi-alg3", "ompi-alg5", "ompi-alg6", "ompi-ucx", "ompi-ucx-alg5", "mpich",
             "ucc", "oneccl"]
TCP_PEERS = ["ompi-tcp", "ompi-tcp-alg5", "ompi-ucx-tcp", "mpich-tcp", "ucc-tcp", "oneccl-tcp"]
GLOO = ["gloo-ring", "gloo-hd"]  # sockets, as it has nothing else


class Case(NamedTuple):
    ours: str  # Pith's contender
    peers: list
    link: str  # over what, for people
    bounds: tuple = ()  # move the same bytes and add nothing: the fastest is the bound


CASES = {
    "registered": Case("pith-registered", SHM_PEERS + GLOO,
                       "shared memory, Pith's buffers of pithMemAlloc"),
    "private": Case("pith-private", SHM_PEERS + GLOO, "shared memory, the caller's own buffers"),
    "tcp": Case("pith-tcp", TCP_PEERS + GLOO, "TCP on loopback",
                ("sockets-1", "sockets-2", "sockets-4")),
    "threads": Case("pith-threads", [*SHM_PEERS, "gloo-threads"],
                    "Pith's ranks are threads of one process"),
    # A ratio below 0.8 is too slow.
    "initall": Case("pith-threads", ["pith-private"],
                    "threads of pithCommInitAll beside processes"),
}


def has(name, collective):
    """Whether a contender can be timed by a collective. Gloo has no function of reduce-scatter; the
    other peers' own programs were never called for other collectives than all-reduce."""
    program, extra = CONTENDERS[name]
    if collective == "allreduce":
        return True
    if program == "gloo_bench":
        return name != "gloo-hd" and collective != "reduce_scatter"
    own = program in ("seam_bench", *MPI_PROGRAMS)
    return own and "allreduce_algorithm" not in extra


def mpirun(program):
    """Debian calls them apart; whose `mpirun` is the other name is the administrator's choice."""
    if program == "mpich_bench":
        return "mpirun.mpich"
    return "mpirun.openmpi" if shutil.which("mpirun.openmpi") else "mpirun"


def binding(ranks):
    return "core" if ranks <= os.cpu_count() else "none"  # our programs bind themselves then


def openmpi_launcher(ranks):
    return [mpirun("openmpi_bench"), "--allow-run-as-root", "--oversubscribe", "--bind-to",
            binding(ranks), "-n", str(ranks)]


def command_of(name, options, group, json_path):
    """Of a contender with a program of ours, which times all sizes of a group."""
    program, extra = CONTENDERS[name]
    # A program of all-reduce alone has no option to say so.
    asked = [] if options.collective == "allreduce" else ["--collective", options.collective]
    common = [*asked, "--ranks", str(options.ranks), "--sizes", ",".join(map(str, group)),
              "--iters", options.iters, "--batches", str(options.batches),
              "--batch-ms", str(options.batch_ms), "--json", str(json_path)]
    path = str(options.bin / program)
    if program == "mpich_bench":
        return [mpirun(program), "-n", str(options.ranks), "-bind-to", binding(options.ranks),
                *extra.split(), path, *common]
    if program not in MPI_PROGRAMS:
        return [path, *common, *extra.split()]
    return [*openmpi_launcher(options.ranks), *extra.split(), path, *common]


class PeerCall(NamedTuple):
    command: list
    environment: dict
    elements: int


def peer_calls(name, options, group):
    """Of a contender with a program of its own: a call for each size."""
    key, extra = CONTENDERS[name]
    peer = peer_programs.PROGRAMS[key]
    asked = options.peer_programs[key]
    launcher = [*asked.mpirun, "-n", str(options.ranks)] if asked.mpirun else (
        openmpi_launcher(options.ranks) if peer.openmpi else ["mpirun", "-n", str(options.ranks)])
    environment = {**os.environ, **dict(one.split("=", 1) for one in extra.split())}
    for size in group:
        elements = max(size // 4, 1)
        flags = peer.flags(elements, peer_programs.iterations(elements, options))
        yield PeerCall([*launcher, str(asked.program), *flags], environment, elements)


def missing(name, options):
    """What a contender lacks to be run, or nothing."""
    program, _ = CONTENDERS[name]
    if program in peer_programs.PROGRAMS:
        return peer_programs.missing(program, options.peer_programs[program])
    if not (options.bin / program).is_file():
        return f"no program {options.bin / program}"
    if program in MPI_PROGRAMS and shutil.which(mpirun(program)) is None:
        return f"no {mpirun(program)}"
    return None
