"""Pages about networks: `report`, `explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import provenformer as pf
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.extras import extra
from provenformer.cli.options import (
    Against,
    Folder,
    HowOrDefault,
    Norm,
    Positional,
    SeqLen,
    Support,
    TokenDim,
    against,
    console,
    function_of,
    read_sequences,
    target_of,
    working,
)
from provenformer.look.circuit import CircuitSubject


def explore(
    folder: Annotated[Path | None, typer.Argument(help="A saved network to open.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Of a saved network: its function. Without one: a function to compile first, as `compile` does."
        ),
    ] = None,
    token_dim: TokenDim = 1,
    seq_len: SeqLen = 3,
    tolerance: Annotated[float | None, typer.Option(help="For --target: the distance you can accept.")] = None,
    cells: Annotated[int | None, typer.Option("--cells", "-N", help="For --target: cells per axis of a table.")] = None,
    norm: Norm = 2,
    construction: HowOrDefault = None,
    support: Support = "0,1",
    positional: Positional = False,
    port: Annotated[int, typer.Option(help="Where to listen on this machine; 0 finds a free port.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Play with circuits and tables in a browser, on this machine only."""
    with extra("explore", "`provenformer explore`"):
        from provenformer.explore.circuits import open_circuit, require_drawable  # noqa: PLC0415
        from provenformer.explore.opened import opened, saved_table  # noqa: PLC0415
        from provenformer.explore.server import serve  # noqa: PLC0415
        from provenformer.explore.settings import LAYER_LIMIT  # noqa: PLC0415
    sized = (tolerance, cells, construction) != (None, None, None)
    if sized and (folder is not None or target is None):
        raise ProvenformerError(
            "--tolerance, --cells and --construction are for a function named with --target and no folder."
        )
    given, table = None, None
    if folder is not None:
        saved = pf.load(folder)
        if saved.grid is not None or saved.data:
            table = saved_table(saved, None if target is None else against(saved, target))
        else:
            given = open_circuit(folder, None if target is None else function_of(saved, target))
    elif target is not None:
        f = target_of(target, token_dim, seq_len, support, positional, None)
        with working(f"compiling {f.name}") as say:
            made = pf.compile(
                f, tolerance=tolerance, cells_per_axis=cells, norm_order=norm, construction=construction,
                max_layers=LAYER_LIMIT, progress=say,
            )  # fmt: skip
        if isinstance(made, pf.Compiled):
            table = opened(made)
        else:
            given = CircuitSubject.of(made)
            require_drawable(given)
    serve(port, open_browser, console.print, given, table)


def write_report(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Write each figure to this folder, too.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="svg, png or pdf; may be given several times. Default: svg.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option("--input", "-i", help="The sequence to follow: a .json or .npy file, '-' for JSON.")
    ] = None,
    target: Against = None,
) -> None:
    """One self-contained page about a saved network: certificate, sizes, pictures of every stage."""
    from provenformer.report import known_formats, report  # noqa: PLC0415

    if formats and figures is None:
        raise ProvenformerError("--format is for the files of --figures; give their folder with --figures DIR.")
    kinds = known_formats(formats or ["svg"])
    sequence = None if inputs is None else read_sequences(inputs)
    given = None if target is None else function_of(pf.load(folder), target)
    with working(f"looking at {folder}"):
        written = report(folder, output, figures=figures, formats=kinds, sequence=sequence, target=given)
    more = f" and {len(written) - 1} figures to {figures}" if figures is not None else ""
    console.print(one_line(f"wrote {output}{more}"))
