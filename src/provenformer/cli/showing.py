"""Pages about networks: `report`, `explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import provenformer as pf
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.extras import extra
from provenformer.cli.options import Against, Folder, against, console, read_sequences, working


def explore(
    folder: Annotated[Path | None, typer.Argument(help="A saved circuit to open.")] = None,
    target: Against = None,
    port: Annotated[int, typer.Option(help="Where to listen on this machine; 0 finds a free port.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Play with the construction in a browser, on this machine only."""
    with extra("explore", "`provenformer explore`"):
        from provenformer.explore.circuits import open_circuit  # noqa: PLC0415
        from provenformer.explore.server import serve  # noqa: PLC0415
    if folder is None and target is not None:
        raise ProvenformerError("--target is the function of a saved circuit; give its folder, too.")
    function = None if folder is None or target is None else against(pf.load(folder), target)
    given = None if folder is None else open_circuit(folder, function)
    serve(port, open_browser, console.print, given)


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
    given = None if target is None else against(pf.load(folder), target)
    with working(f"looking at {folder}"):
        written = report(folder, output, figures=figures, formats=kinds, sequence=sequence, target=given)
    more = f" and {len(written) - 1} figures to {figures}" if figures is not None else ""
    console.print(one_line(f"wrote {output}{more}"))
