"""Evaluation of a finished run on other data than its own."""

from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.run_folder import read_result
from provenformer.bert.settings import build_settings
from provenformer.bert.training.finetune import FinetuneSettings, evaluate_finetuned
from provenformer.bert.training.pretrain import PretrainSettings, evaluate_pretrained
from provenformer.bert.training.texts import TextSettings, evaluate_texts


def evaluate_run(run: Path, data: Path, processes: Processes | None = None) -> dict[str, float]:
    """Metrics of the run's model: pre-training on prepared data, fine-tuning on a file of its task."""
    plan = run / "result.json"
    if not plan.exists():
        whole = f"give the folder of the whole run, {run.parent}"
        remedy = (
            whole if (run.parent / plan.name).exists() else "run `provenformer bert pretrain` or `finetune` into it"
        )
        raise ProvenformerError(f"{run} holds no finished run; {remedy}")
    asked = read_result(run)["asked"].get("settings")
    if isinstance(asked, dict) and asked.get("task") == "text":
        return evaluate_texts(build_settings(TextSettings, asked, str(plan)), run / "model", data, processes)
    if isinstance(asked, dict) and "task" in asked:
        return evaluate_finetuned(build_settings(FinetuneSettings, asked, str(plan)), run / "model", data, processes)
    return evaluate_pretrained(run / "model", data, build_settings(PretrainSettings, asked, str(plan)), processes)
