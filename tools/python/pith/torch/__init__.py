"""Pith for PyTorch: the process-group backend "pith" and compressed gradients for DDP.

Importing this module registers the backend:

    import torch.distributed as dist
    import pith.torch
    dist.init_process_group("pith")
"""

from __future__ import annotations

from pith.torch._version import check_version

check_version()

from pith.torch.backend import failed_ranks, register  # noqa: E402
from pith.torch.bucket_stats import tensor_densities  # noqa: E402
from pith.torch.compress_hook import CompressHook, compress_hook  # noqa: E402
from pith.torch.hybrid_hook import HybridHook, hybrid_hook  # noqa: E402
from pith.torch.memory import empty, registered_tensors  # noqa: E402
from pith.torch.outer_step import OuterStep  # noqa: E402
from pith.torch.shrink import shrink  # noqa: E402

register()

__all__ = [
    "CompressHook",
    "HybridHook",
    "OuterStep",
    "compress_hook",
    "empty",
    "failed_ranks",
    "hybrid_hook",
    "registered_tensors",
    "shrink",
    "tensor_densities",
]
