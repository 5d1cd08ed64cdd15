"""Does delta / r predict accuracy? Train what is missing of the small models, measure run folders, and correlate.

python -m experiments.contextual                                     from the results that are there
python -m experiments.contextual --data D --valid V                  train the small models first; --mnli TRAIN DEV tunes them
python -m experiments.contextual --valid V --run FOLDER ...          add run folders of the study, all their checkpoints
"""

import argparse
import sys
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path, write_json

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.contextual",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="prepared training data (`provenformer bert prepare`)")
    parser.add_argument("--valid", type=Path, help="prepared held-out data with the same vocabulary")
    parser.add_argument(
        "--run", type=Path, action="append", default=[], help="a run folder of the study; may be repeated"
    )
    parser.add_argument("--mnli", type=Path, nargs=2, help="training and dev file, to fine-tune the small models on")
    parser.add_argument("--only", action="append", help="this small model only; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/contextual"), help="folder for weights and checkpoints")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of results/ and table.md")
    arguments = parser.parse_args()
    results = arguments.output / "results"
    if (arguments.data or arguments.run) and arguments.valid is None:
        raise ProvenformerError(
            "to train or to measure runs, give --valid FOLDER; without both, results that are there are read"
        )
    from experiments.contextual.predict import (  # after the arguments: loading scipy and torch takes seconds
        read,
        table,
        words,
    )

    if arguments.data or arguments.run:
        from experiments.contextual.points import MODELS, from_run, train

        names = arguments.only or list(MODELS)
        if unknown := [name for name in names if name not in MODELS]:
            raise ProvenformerError(f"--only {unknown[0]} is not a small model; choose from: {', '.join(MODELS)}")
        for name in names if arguments.data else []:
            train(name, arguments.seed, arguments.data, arguments.valid, arguments.mnli, arguments.runs, results)
        for run in arguments.run:
            from_run(run, arguments.valid, results, "study")
    found = table(read(results))
    write_json(arguments.output / "correlations.json", found)
    with atomic_path(arguments.output / "table.md") as temporary:
        temporary.write_text(words(found))
    print(words(found))


try:
    main()
except ProvenformerError as error:
    sys.exit(f"error: {error}")
