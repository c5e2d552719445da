"""The collectives that can be compared, by their names on the command line."""
TITLES = {"allreduce": "All-reduce, float32 sum", "allgather": "All-gather, float32",
          "broadcast": "Broadcast, float32", "reduce_scatter": "Reduce-scatter, float32 sum",
          "alltoall": "All-to-all, float32"}
HAVE_BLOCKS = ("allgather", "reduce_scatter", "alltoall")
FLOAT_BYTES = 4


def name_of(title):
    """Of a set of results."""
    return next((name for name, one in TITLES.items() if one == title), "allreduce")


def whole_size(collective, size, ranks):
    """The size that programs time for `size`: a whole number of blocks of at least a float."""
    step = FLOAT_BYTES * (ranks if collective in HAVE_BLOCKS else 1)
    return -(-max(size // FLOAT_BYTES, 1) * FLOAT_BYTES // step) * step


def bus_factor(collective, ranks):
    """What a link carries at the least, as a part of the size; as nccl-tests count it."""
    if collective == "broadcast":
        return 1
    others = (ranks - 1) / ranks
    return 2 * others if collective == "allreduce" else others
