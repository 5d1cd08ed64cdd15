"""Run the experiments named on the command line, or all, and write their results."""

import argparse
import importlib
import json
import sys
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json

QUESTIONS = ("sharing", "layer_norm", "training", "stacking", "width")
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.questions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(QUESTIONS)}; without one, all")
    parser.add_argument("--quick", action="store_true", help="a tiny setting, to see that it runs")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON files")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in QUESTIONS]
    if unknown:
        raise ProvenformerError(f"unknown question '{unknown[0]}'; choose one of: {', '.join(QUESTIONS)}.")
    if arguments.quick and arguments.output == RESULTS:
        raise ProvenformerError("--quick would overwrite the results that the docs show; give --output FOLDER.")
    from provenformer.bert.provenance import provenance  # after the arguments: loading torch takes seconds

    for name in arguments.names or QUESTIONS:
        found = importlib.import_module(f"experiments.questions.{name}").run(arguments.quick)
        command = f"python -m experiments.questions {name}" + " --quick" * arguments.quick
        write_json(arguments.output / f"{name}.json", {"command": command, "from": provenance(), **found})
        print(json.dumps(found, indent=1))


try:
    main()
except ProvenformerError as error:
    sys.exit(f"error: {error}")
