"""The schemes that Pith and GRACE both have, and the gradients on which they are compared."""
import importlib
import sys
import types

import numpy as np
import torch

import pith

BUCKET = 512  # of qsgd, for both
BLOCK = 1024  # of efsign and onebit
RANK = 4
DENSITY = 0.01
VALUE = 2.0**-8  # of threshold
MOMENTUM = 0.9  # of dgc and signum


class OnHost(np.ndarray):
    """A NumPy array with the one method of CuPy's arrays that GRACE calls."""

    def toDlpack(self):  # noqa: N802
        return self.__dlpack__()


class Int32:
    """np.int32, but wraps, as CuPy's does."""
    dtype = np.dtype("int32")

    def __new__(cls, value):
        return np.array(value, "u4").view("i4")[()]


def cupy_of_numpy():
    """What GRACE's `natural` calls of CuPy, which runs on GPUs only."""
    draws = np.random.default_rng(0)
    cupy = types.ModuleType("cupy")
    for name in ("where", "clip", "right_shift", "left_shift", "bitwise_or", "bitwise_and",
                 "multiply", "uint8", "float32"):
        setattr(cupy, name, getattr(np, name))
    cupy.int32 = Int32
    cupy.fromDlpack = lambda capsule: torch.from_dlpack(capsule).numpy().view(OnHost)
    cupy.random = types.SimpleNamespace(
        randint=lambda low, high, size, dtype: draws.integers(low, high, size, dtype.dtype))
    return cupy


def import_grace(folder):
    sys.path.insert(0, str(folder))
    sys.modules.setdefault("cupy", cupy_of_numpy())


def grace_class(module, name, kind="compressor"):
    return getattr(importlib.import_module(f"grace_dl.dist.{kind}.{module}"), name)


class Scheme:
    """A scheme of both. GRACE's takes PowerSGD's layers one by one, as DDP without buckets does."""

    def __init__(self, name, spec, module, compressor, *arguments):
        self.name, self.spec = name, spec
        self.module, self.compressor, self.arguments = module, compressor, arguments
        self.draws = name in ("randomk", "qsgd 8", "qsgd 4", "ternary",
                              "terngrad", "natural", "powersgd")

    def pith(self, gradients, **keys):
        """A new compressor of Pith's, with more keys."""
        spec = self.spec
        for key, value in keys.items():
            spec += f"{',' if ':' in spec else ':'}{key}={value}"
        compressor = pith.Compressor(spec)
        if self.name == "powersgd":
            compressor.set_shape([shape for _, shape, _ in gradients.layers])
        return compressor

    def grace(self, gradients):
        layers = gradients.layers if self.name == "powersgd" else None
        return Grace(grace_class(self.module, self.compressor)(*self.arguments), layers)


SCHEMES = {one.name: one for one in (
    Scheme("topk", f"topk:density={DENSITY},bypass=never", "topk", "TopKCompressor", DENSITY),
    Scheme("randomk", f"randomk:density={DENSITY},bypass=never,feedback=0", "randomk",
           "RandomKCompressor", DENSITY),
    Scheme("sign", "sign", "signsgd", "SignSGDCompressor"),
    Scheme("efsign", f"efsign:block={BLOCK}", "efsignsgd", "EFSignSGDCompressor", 1),
    Scheme("qsgd 8", f"qsgd:bits=8,bucket={BUCKET}", "qsgd", "QSGDCompressor", 127, BUCKET),
    Scheme("qsgd 4", f"qsgd:bits=4,bucket={BUCKET}", "qsgd", "QSGDCompressor", 7, BUCKET),
    Scheme("ternary", f"qsgd:bits=2,bucket={BUCKET}", "terngrad", "TernGradCompressor"),
    Scheme("terngrad", f"terngrad:bucket={BUCKET}", "terngrad", "TernGradCompressor"),
    Scheme("natural", "natural", "natural", "NaturalCompressor"),
    Scheme("threshold", f"threshold:value={VALUE},bypass=never", "threshold",
           "ThresholdCompressor", VALUE),
    Scheme("dgc", f"dgc:density={DENSITY},momentum={MOMENTUM},bypass=never", "dgc",
           "DgcCompressor", DENSITY),
    Scheme("signum", f"signum:momentum={MOMENTUM}", "signum", "SignumCompressor", MOMENTUM),
    Scheme("onebit", f"onebit:block={BLOCK}", "onebit", "OneBitCompressor"),
    Scheme("16 bits", "bf16:bypass=never", "fp16", "FP16Compressor"),
    Scheme("fp16", "fp16", "fp16", "FP16Compressor"),
    Scheme("powersgd", f"powersgd:rank={RANK}", "powersgd", "PowerSGDCompressor", RANK, True))}


class Grace:
    """One of GRACE's compressors, on a flat gradient. onebit's signs become bool, as in its copy
    for Horovod: ~ of uint8 is another number."""

    def __init__(self, compressor, layers=None):
        self.compressor, self.layers = compressor, layers

    def compress(self, x):
        return [self.compressor.compress(part, name) for name, part in self.parts(x)]

    def decompress(self, compressed):
        if type(self.compressor).__name__ == "OneBitCompressor":
            compressed = [((one[0].bool(), *one[1:]), shape) for one, shape in compressed]
        return [self.compressor.decompress(*one) for one in compressed]

    def __call__(self, x):
        """x after both."""
        return np.concatenate([part.numpy().ravel() for part in self.decompress(self.compress(x))])

    def forget(self):
        """PowerSGD and Signum begin anew."""
        for memory in ("q_memory", "momentums"):
            getattr(self.compressor, memory, {}).clear()

    def parts(self, x):
        tensor = torch.from_numpy(x)
        if self.layers is None:
            return [("x", tensor)]
        return [(name, tensor[at:at + size_of(shape)].view(shape))
                for name, shape, at in self.layers]

    def bits(self, x):
        """Of its tensors, per element; PowerSGD's, which it sends itself, are in the context."""
        sent = [one for tensors, context in self.compress(x) for one in tensors or context[:2]]
        return 8 * sum(one.numel() * one.element_size() for one in sent) / x.size


class Gradients:
    """Of two workers at the last step of a task in manifest.json, and the model's layers."""

    def __init__(self, task, folder):
        step = max(one["step"] for one in task["snapshots"])
        files = {one["worker"]: folder / one["file"] for one in task["snapshots"]
                 if one["step"] == step}
        kind = {"float32": "<f4", "float16": "<f2"}[task["dtype"]]
        scale = np.float32(task["stored_is_gradient_times"])
        self.name = f"{task['name']}, step {step}"
        self.read = lambda one: np.fromfile(files[one], kind).astype("f4") / scale
        self.workers = self.of_workers(2)
        self.layers = [(one["name"], one["shape"], one["offset"]) for one in task["layers"]]

    def of_workers(self, number):
        return [self.read(worker) for worker in range(number)]


def size_of(shape):
    return int(np.prod(shape))


def relative(x, reference):
    """||x - reference|| / ||reference||"""
    exact = reference.astype("f8")
    return float(np.linalg.norm(x - exact) / np.linalg.norm(exact))
