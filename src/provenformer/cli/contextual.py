"""`provenformer contextual`: is a model a contextual mapping, and with how much room?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.extras import extra
from provenformer.cli.options import AsJson, console, errors


def contextual(
    model: Annotated[
        str, typer.Argument(help="A folder of save_pretrained or of a run (its `model`), or a name of the hub.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for index.html, table.md, contextual.json, figures.")
    ],
    text: Annotated[
        Path | None, typer.Option(help="One sentence a line, plain or .gz; without it the library's own sentences.")
    ] = None,
    sentences: Annotated[int, typer.Option(help="At most so many lines of the text, evenly spaced.")] = 1000,
    mode: Annotated[
        list[str] | None, typer.Option(help="tokens, words, edits or swaps; may be repeated. Default: the first three.")
    ] = None,
    longest: Annotated[int, typer.Option(help="Cut sentences after so many tokens.")] = 64,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Measure [CLS], [SEP], ... like all others.")
    ] = False,
    senses: Annotated[
        Path | None, typer.Option(help="Lines 'word | sense | sentence'; without it the library's own.")
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="Whose contexts to draw; without it the one told apart best.")
    ] = None,
    memory: Annotated[float, typer.Option(help="GiB of hidden states; more text than that is refused.")] = 4.0,
    seed: Annotated[int, typer.Option(help="Of edits, samples and the random weights.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a model of transformers or of `bert`: what each layer tells apart, beside the same model with random weights."""
    with extra("contextual", "`provenformer contextual`"):
        from transformers.utils import logging  # noqa: PLC0415

        from provenformer.contextual.examine import examine, read_lines  # noqa: PLC0415
        from provenformer.contextual.measure import USUAL  # noqa: PLC0415
        from provenformer.contextual.page import SHORT_HEADS, text_rows, write  # noqa: PLC0415
        from provenformer.contextual.senses import read_senses, sample  # noqa: PLC0415
    logging.disable_progress_bar()  # of loading weights; ours shows what takes time
    if sentences < 2 or longest < 4 or memory <= 0:
        raise ProvenformerError("--sentences must be at least 2, --longest at least 4, --memory above 0; correct it.")
    texts, short = (None, 0) if text is None else read_lines(text, sentences)
    if short:
        errors.print(f"{short:,} lines of fewer than 3 words are left out")
    occurrences = sample() if senses is None else read_senses(senses)
    if word is not None and word not in {one.word for one in occurrences}:
        raise ProvenformerError(
            f"--word {word} has no sentences; choose from: {', '.join(sorted({o.word for o in occurrences}))}."
        )
    found = examine(
        model, texts, modes=tuple(mode) if mode else USUAL,  # type: ignore[arg-type]
        text_name="the library's own sentences" if text is None else text.name, occurrences=occurrences, longest=longest,
        special_tokens=special_tokens, memory=int(memory * 2**30), seed=seed, progress=errors.is_terminal,
    )  # fmt: skip
    written = write(found, output, word)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
        return
    for shown in found.measurement.model.modes:
        table = Table(*SHORT_HEADS, box=None, title=f"{shown}, distances over r", title_justify="left")
        for cells in text_rows(found, shown):
            table.add_row(*cells[: len(SHORT_HEADS)])
        console.print(table)
    console.print(one_line(f"wrote {written[0]} and {len(written) - 1} more files"))
