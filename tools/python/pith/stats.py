"""The statistics of a compressed call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompressorStats:
    """Of this rank's last call with a compressor."""

    calls: int
    """Bypassed ones included."""
    count: int
    """Elements of the vector."""
    density_target: float
    """That of the spec; with density=auto that of the last call, 1 if all was sent."""
    density: float
    """selected_union / count."""
    threshold: float
    """The smallest magnitude elected here; ExDyna: the common threshold."""
    selected_local: int
    """Elements that this rank elected."""
    selected_union: int
    """Distinct elements that any rank sent."""
    leader: int
    """-1: there is none."""
    bypassed: bool
    """Whether the call was dense."""
    gain: float
    """Squared norm of what this rank sent, by that of gradient plus residual."""
    residual_norm: float
    imbalance: float
    bytes_sent: int
    bytes_received: int
    nonfinite: int
    """Elements of gradient plus residual that were not finite."""
    select_seconds: float
    exchange_seconds: float
    total_seconds: float
    predicted_seconds: float
    """0: not known."""
    algorithm: str
