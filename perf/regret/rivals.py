"""Who else could choose, on the times of the same cells. Each is a function from a cell to the name
of a candidate, or to None where it says nothing.

"openmpi" are the thresholds that Open MPI publishes for 2 to 15 ranks (its fixed rules:
ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, as of 2026), not its algorithms: where Pith has no
algorithm of that name the nearest one stands for it.
"""
import math

NEVER_FIXED = ("default", "default-again")


def is_fixed(name):
    """An algorithm; a setting beside the library's own choice is none."""
    return name not in NEVER_FIXED and "=" not in name


def best_fixed(cells, regret_of):
    """The algorithm with the least geometric mean of times that serves all cells; None if none
    does."""
    names = {one["name"] for cell in cells for one in cell["candidates"]}
    means = {}
    for name in sorted(filter(is_fixed, names)):
        regrets = [regret_of(cell, name) for cell in cells]
        if None not in regrets:
            means[name] = sum(map(math.log1p, regrets))
    return min(means, key=means.get) if means else None


# Open MPI's algorithm: ours. Linear ones and the two halves of an allreduce have no equal here.
NEAREST = {
    "allreduce": {"recursive_doubling": "recursive_doubling", "ring": "ring",
                  "segmented_ring": "ring", "rabenseifner": "rabenseifner"},
    "reduce_scatter": {"basic_linear": "views", "recursive_doubling": "recursive_halving",
                       "recursive_halving": "recursive_halving", "butterfly": "recursive_halving"},
    "allgather": {"recursive_doubling": "bruck", "two_proc": "ring"},
    "broadcast": {"basic_linear": "views", "chain": "chain", "pipeline": "chain",
                  "binary_tree": "binomial", "binomial": "binomial", "knomial": "binomial"},
}

# By collective: rows of (ranks below, [(bytes below, algorithm)]). Bytes are those of `count`
# elements: of the vector, or of a block.
OPEN = math.inf
THRESHOLDS = {
    "allreduce": [
        (4, [(8, "ring"), (4096, "recursive_doubling"), (8192, "ring"),
             (16384, "recursive_doubling"), (65536, "ring"), (262144, "segmented_ring"),
             (OPEN, "rabenseifner")]),
        (8, [(16, "ring"), (8192, "recursive_doubling"), (OPEN, "rabenseifner")]),
        (16, [(8192, "recursive_doubling"), (OPEN, "rabenseifner")]),
    ],
    "reduce_scatter": [
        (4, [(4, "recursive_doubling"), (8, "butterfly"), (16, "recursive_halving"),
             (128, "butterfly"), (256, "recursive_halving"), (4096, "butterfly"),
             (8192, "recursive_halving"), (131072, "butterfly"), (OPEN, "basic_linear")]),
        (8, [(8, "recursive_halving"), (32, "recursive_doubling"), (256, "butterfly"),
             (8192, "recursive_halving"), (16384, "butterfly"), (1048576, "recursive_halving"),
             (OPEN, "basic_linear")]),
        (16, [(4, "basic_linear"), (32, "recursive_halving"), (128, "butterfly"),
              (524288, "recursive_halving"), (4194304, "basic_linear"), (OPEN, "butterfly")]),
    ],
    "allgather": [(3, [(OPEN, "two_proc")]), (16, [(OPEN, "recursive_doubling")])],
    "broadcast": [
        (4, [(32, "pipeline"), (256, "binary_tree"), (512, "pipeline"), (1024, "knomial"),
             (32768, "basic_linear"), (131072, "binary_tree"), (262144, "chain"),
             (524288, "basic_linear"), (1048576, "binomial"), (OPEN, "binary_tree")]),
        (8, [(64, "binary_tree"), (128, "binomial"), (2048, "binary_tree"), (8192, "binomial"),
             (1048576, "basic_linear"), (OPEN, "chain")]),
        (16, [(8, "knomial"), (64, "binary_tree"), (4096, "knomial"), (16384, "binary_tree"),
              (32768, "binomial"), (OPEN, "basic_linear")]),
    ],
}
OF_BLOCKS = ("reduce_scatter", "allgather")


def openmpi(cell):
    collective = cell["collective"]
    if collective not in THRESHOLDS:
        return None
    blocks = cell["ranks"] if collective in OF_BLOCKS else 1
    size = max(cell["bytes"] // blocks // 4, 1) * 4
    for ranks_below, rows in THRESHOLDS[collective]:
        if cell["ranks"] < ranks_below:
            theirs = next(name for below, name in rows if size < below)
            return NEAREST[collective][theirs]
    return None


def least_cost(kind):
    """The algorithm whose cost function is least; of equal ones the first. Where the link was not
    laid the nominal one is all that is known."""
    def choose(cell):
        costs = {one["name"]: one["costs"].get(kind, one["costs"]["textbook"])
                 for one in cell["candidates"] if "costs" in one}
        return min(costs, key=costs.get) if costs else None
    return choose


# "textbook" takes every link for the same nominal one, "textbook-laid" knows the rate and delay
# that the laboratory was asked for.
def unlearned(_):
    """The library before it has made any call of the cell."""
    return "learn=0"


RIVALS = {"unlearned": unlearned, "openmpi": openmpi, "textbook": least_cost("textbook"),
          "textbook-laid": least_cost("textbook-laid")}
