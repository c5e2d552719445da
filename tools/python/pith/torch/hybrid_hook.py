"""FSDP within a host, compressed gradients between hosts.

FSDP2's own hybrid sharding, fully_shard with a mesh of two dimensions, makes the all-reduce between
hosts itself, with no place for another one: its hook comes after that sum. With the mesh of one
host the hook comes after the reduce-scatter, and may make the sum between hosts. The gradients that
it gets are this rank's shard of one module's, always in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from pith.torch.backend import backend_of
from pith.torch.model_tensors import broadcast_model, other_shards
from pith.torch.vector_compressor import VectorCompressor, check_spec, shares_of


class HybridHook:
    """Compresses the mean over `group` of the gradients of every module of `model`.

    model: after fully_shard, with the mesh of this host's ranks only. group: the ranks of all hosts
    with this shard; all get the parameters of its first rank here.
    """

    def __init__(self, model: torch.nn.Module, group: dist.ProcessGroup, spec: str) -> None:
        check_spec(spec)
        _check(model, group)
        self.spec, self.group = spec, group
        self._compressors: dict[str, VectorCompressor] = {}
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, torch.Tensor] = {}  # loaded before the first call
        broadcast_model(model, group)
        self._names = []
        for name, module in model.named_modules():
            if isinstance(module, FSDPModule):
                self._names.append(name)
                # Else a parameter without a gradient would move those after it.
                module.set_reduce_scatter_unused_params(True, recurse=False)
                module.set_all_reduce_hook(partial(self._reduce, name))

    def stats(self) -> dict[str, dict[str, float]]:
        """The statistics of each module's last call."""
        return {name: compressor.stats() for name, compressor in self._compressors.items()}

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals, of each FSDP module by its name."""
        residuals = dict(self._waiting)
        for name, compressor in self._compressors.items():
            residuals[name] = compressor.residual(self._counts[name])
        return {"spec": self.spec, "residuals": residuals}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Takes the residuals of a saved run in place of what it holds.

        state: of this rank, or a list with those of all hosts of the saved run for this shard, of
        which there may be another number. A host has as many ranks as then.
        """
        mine, weight = shares_of(state, self.group.rank(), self.group.size())
        self._compressors.clear()
        self._waiting.clear()
        for saved in mine:
            for name, residual in saved["residuals"].items():
                if name not in self._names:
                    raise ValueError(f"the state has residuals of {name!r}: no such FSDP module")
                before = self._waiting.get(name, 0)
                self._waiting[name] = before + residual.float() * weight

    def _reduce(self, name: str, gradients: torch.Tensor) -> None:
        backend = backend_of(self.group, gradients.device)
        if name not in self._compressors:
            self._compressors[name] = self._begin(name, gradients.numel())
        self._compressors[name].mean(gradients, backend)

    def _begin(self, name: str, count: int) -> VectorCompressor:
        compressor = VectorCompressor(self.spec)
        self._counts[name] = count
        residual = self._waiting.pop(name, None)
        if residual is not None:
            if residual.numel() != count:
                raise ValueError(
                    f"the state has {residual.numel()} residuals of {name!r}, expected {count}"
                )
            compressor.add_residual(residual)
        return compressor


def _check(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    if not isinstance(model, FSDPModule):
        raise ValueError("the model is no FSDP module: call fully_shard first")
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise ValueError(f"{name} is not sharded, so the hook would not get its gradient")
        shared = other_shards(parameter, group)
        if shared:
            raise ValueError(
                f"FSDP itself shares {name} with the ranks {shared} of the group: "
                "call fully_shard with the mesh of one host"
            )


def hybrid_hook(
    model: torch.nn.Module, group: dist.ProcessGroup, spec: str = "auto"
) -> HybridHook:
    """Makes the sums between hosts compressed: `hybrid_hook(model, mesh["between"].get_group())`.

    spec: a compressor as in compression.md; "auto" chooses scheme and density by time.
    """
    return HybridHook(model, group, spec)
