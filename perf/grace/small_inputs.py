"""The smallest inputs with which GRACE (commit fd3a7f4) does otherwise than the papers, and what
Pith makes of them where it has the scheme."""
import numpy as np
import torch

import pith

from both import MOMENTUM, grace_class
from other_programs import Missing, tensorflow_of_grace


def through(compressor, values):
    """Compressed and decompressed."""
    return compressor.decompress(*compressor.compress(torch.tensor(values), "x"))


def through_pith(comm, spec, values, shape=None):
    compressor = pith.Compressor(spec)
    if shape:
        compressor.set_shape([shape])
    return comm.all_reduce(np.array(values, "f4").ravel(), compressor=compressor)


def efsign_steps(rate):
    """Results of two steps with the gradient 1, as its optimiser gets them."""
    memory = grace_class("efsignsgd", "EFSignSGDMemory", "memory")(rate)
    compressor = grace_class("efsignsgd", "EFSignSGDCompressor")(rate)
    for _ in range(2):
        total = memory.compensate(torch.ones(1), "x")
        compressed, context = compressor.compress(total, "x")
        memory.update(total, "x", compressor, compressed, context)
        yield float(compressor.aggregate([compressor.decompress(compressed, context)]))


def powersgd_steps(matrix, with_memory):
    """Error of rank 1 after 30 steps of one matrix, residuals taken off again."""
    compressor = grace_class("powersgd", "PowerSGDCompressor")(1, True)
    memory = grace_class("powersgd", "PowerSGDMemory", "memory")(compressor.q_memory, 1)
    for _ in range(30):
        gradient = matrix.clone()
        if with_memory:
            if "x" in memory.residuals:
                gradient -= memory.residuals["x"]
            gradient = memory.compensate(gradient, "x")
        compressed, context = compressor.compress(gradient, "x")
        memory.update(gradient, "x", compressor, compressed, context)
    return float((compressor.decompress(compressed, context) - matrix).norm() / matrix.norm())


def u8bit_of_largest():
    """What becomes of the largest magnitude, above the last edge of the bins."""
    try:
        compressor, tensorflow = tensorflow_of_grace("u8bit", "U8bitCompressor")
    except Missing as error:
        return f"not compared: no {error}"
    values = [[1.0] * 16, [0.5, 1.0]]
    results = []
    for one in values:
        try:
            compressed = compressor.compress(tensorflow.constant(one), "x")
            results.append(str(compressor.decompress(*compressed).numpy()[-1]))
        except tensorflow.errors.InvalidArgumentError:
            results.append("an error, index 128 of 128")
    return f"the last of sixteen ones becomes {results[0]}, of [0.5, 1] {results[1]}"


def findings(comm):
    """Lines of text."""
    of = grace_class
    yield ("onebit", "[-1, 1] becomes "
           f"{through(of('onebit', 'OneBitCompressor')(), [-1.0, 1.0]).tolist()}: ~ of uint8")
    yield ("threshold", "1.5 elects of [-1, -2] "
           f"{through(of('threshold', 'ThresholdCompressor')(1.5), [-1.0, -2.0]).tolist()}: "
           "max without abs")
    momenta = of("signum", "SignumCompressor")(MOMENTUM)
    mine = pith.Compressor(f"signum:momentum={MOMENTUM}")
    signs = [(float(momenta.decompress(*momenta.compress(torch.tensor([one]), "x"))),
              float(comm.all_reduce(np.array([one], "f4"), compressor=mine)[0]))
             for one in (1.0, -2.0)]
    yield ("signum", f"the second sign of the gradients 1, -2 is {signs[1][0]:+g}, with Pith "
           f"{signs[1][1]:+g}: its momentum begins with the whole first gradient")
    try:
        of("dgc", "DgcMemory", "memory")(MOMENTUM, True, 1).compensate(torch.ones(2), "x")
    except TypeError as error:
        yield "dgc", f"gradient_clipping=True ends with TypeError: {error}"
    random_k = of("randomk", "RandomKCompressor")(1.0)
    yield ("randomk", "4 of [1, 2, 3, 4] are "
           f"{through(random_k, [1.0, 2.0, 3.0, 4.0]).tolist()}: drawn with replacement")
    drawn = []
    for _ in range(2):
        through(of("randomk", "RandomKCompressor")(0.5), [1.0, 2.0])
        drawn.append(float(torch.rand(1)))
    yield ("randomk", f"seeds PyTorch's own generator: after two calls torch.rand gives {drawn}")
    yield ("efsignsgd", "two steps of the gradient 1, learning rate 0.1: "
           f"{[round(one, 6) for one in efsign_steps(0.1)]}: the first without the rate")
    large = float(through(of("natural", "NaturalCompressor")(), [2.0**19]))
    yield ("natural", f"2^19 becomes 2^{np.log2(large):g}, with Pith "
           f"2^{np.log2(through_pith(comm, 'natural', [2.0**19])[0]):g}")
    yield "u8bit", u8bit_of_largest()
    zero = through(of("powersgd", "PowerSGDCompressor")(1), [[0.0, 0.0], [0.0, 0.0]])
    yield ("powersgd", f"zeros become {zero.ravel().tolist()}, with Pith "
           f"{through_pith(comm, 'powersgd:rank=1', np.zeros((8, 8)), (8, 8))[:4].tolist()}")
    twice = torch.outer(torch.arange(1.0, 17), torch.arange(1.0, 17))
    torch.manual_seed(0)
    theirs = through(of("powersgd", "PowerSGDCompressor")(2), twice.tolist())
    mine = through_pith(comm, "powersgd:rank=2", twice.numpy(), (16, 16))
    yield ("powersgd", "of a matrix of rank 1, rank=2 makes "
           f"{float(theirs.norm() / twice.norm()):.3f} times it, with Pith "
           f"{np.linalg.norm(mine) / float(twice.norm()):.3f} times it")
    torch.manual_seed(1)
    matrix = torch.diag(torch.tensor([1.0, 0.8, 0.6, 0.4]))
    yield ("powersgd", "error of rank 1 after 30 steps of diag(1, 0.8, 0.6, 0.4), least 0.733: "
           f"{powersgd_steps(matrix, False):.3f}, with GRACE's memory, which draws the right "
           f"factor anew in every step, {powersgd_steps(matrix, True):.3f}")
