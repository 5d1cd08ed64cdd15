"""The best weights of a run, and when to stop: a function of the evaluations, so that a resumed run decides the same."""

import math
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.runtime.metric_log import REMEDY, read_log
from provenformer.bert.runtime.processes import Processes


@dataclass
class Best:
    """Stops after `patience` evaluations without a better `metric`; of equal ones the lower loss is kept.

    weights  the file that keeps them
    sign     1 if more is better, -1 if less
    """

    weights: Path
    metric: str
    sign: int
    patience: int
    value: tuple[float, float] | None = None
    waited: int = 0

    def replay(self, log: Path, start: int) -> None:
        """What a run that resumes has seen up to its checkpoint."""
        for entry in read_log(log):
            if entry["step"] <= start and self.metric in entry:
                self._note(entry)

    def seen(self, metrics: dict[str, float], model: nn.Module, processes: Processes) -> None:
        """Keep the weights if they are the best."""
        if self._note(metrics) and processes.first:
            with atomic_path(self.weights) as temporary:
                save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, temporary)
        processes.wait()

    @property
    def finished(self) -> bool:
        return self.waited >= self.patience

    def restore(self, model: nn.Module) -> None:
        """The best weights, in place."""
        try:
            model.load_state_dict(load_file(self.weights))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise ProvenformerError(f"{self.weights} cannot be loaded ({type(error).__name__}); {REMEDY}") from None

    def _note(self, metrics: dict[str, float]) -> bool:
        """Whether these weights are to be kept. A lower loss alone is nothing to wait for: it may go on falling for long."""
        value = self.sign * metrics[self.metric], -metrics["valid_loss"]
        before = self.value or (-math.inf, -math.inf)
        self.waited = 0 if value[0] > before[0] else self.waited + 1
        better = value > before
        self.value = max(value, before)
        return better
