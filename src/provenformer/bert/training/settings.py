"""What every kind of training is asked for, and the learning rate that follows from it."""

from dataclasses import dataclass

from provenformer.bert.settings import ABOVE_0, BELOW_1, FROM_0, FROM_1, Range, check_fields, choice, ranged

SEED: Range = ("from 0 to 2^64 - 1", lambda value: 0 <= value < 2**64)
FINITE: Range = ("at least 0 and finite", lambda value: 0 <= value < float("inf"))


@dataclass(frozen=True)
class TrainingSettings:
    """What every kind of training is asked for.

    batch_size          examples a step, over all processes and micro-batches
    micro_batch         examples a process takes at once, to save memory; 0 for its whole share
    optimizer           "adamw", or "muon" for the matrices of the layers and AdamW for the rest
    muon_learning_rate  of those matrices; `learning_rate` is that of the rest
    decay               learning rate after warm-up: "linear" to zero, "constant", or "stable": constant, and linear to
                        zero over the last `decay_fraction` of the run
    clip_norm           largest norm of the gradient, which is scaled down to it; 0 for no limit
    evaluate_every      steps; 0 for the end only
    threads             of the CPU; 0 for torch's choice. Bit-identical runs need the same number
    """

    seed: int = ranged(0, SEED)
    batch_size: int = ranged(32, FROM_1)
    micro_batch: int = ranged(0, FROM_0)
    optimizer: str = choice("adamw", "muon")
    learning_rate: float = ranged(1e-4, ABOVE_0)
    muon_learning_rate: float = ranged(5e-3, ABOVE_0)
    warmup_steps: int = ranged(0, FROM_0)
    decay: str = choice("linear", "constant", "stable")
    decay_fraction: float = ranged(0.2, ("above 0 and at most 1", lambda value: 0 < value <= 1))
    weight_decay: float = ranged(0.01, FINITE)
    beta1: float = ranged(0.9, BELOW_1)
    beta2: float = ranged(0.999, BELOW_1)
    clip_norm: float = ranged(1.0, FROM_0)
    bf16: bool = False
    log_every: int = ranged(10, FROM_1)
    evaluate_every: int = ranged(0, FROM_0)
    checkpoint_every: int = ranged(1000, FROM_1)
    threads: int = ranged(0, FROM_0)

    def __post_init__(self) -> None:
        check_fields(self)

    def schedule(self, step: int, steps: int) -> float:
        """The share of the full learning rate that a step has."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        falling = {
            "linear": steps - self.warmup_steps,
            "stable": self.decay_fraction * steps,
            "constant": 0,
        }[self.decay]
        return min(1.0, (steps - step) / falling) if falling > 0 else 1.0
