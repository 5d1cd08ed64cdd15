"""Reports on a network: data as plain arrays, figures (matplotlib), and one self-contained HTML page.

    report("net", "report.html", figures="figures", formats=("svg", "pdf"))

What is looked at and the arrays to draw come from look/; figures, figures_ids and figures_circuit draw them; pictures and
pictures_circuit add words; page and circuit_page make the page. Needs the extra `provenformer[report]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from provenformer.anatomy.circuit import Circuit
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.extras import extra
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.look.circuit import CircuitSubject
from provenformer.look.loading import load_subject
from provenformer.report.circuit_findings import find_circuit
from provenformer.report.files import write_together
from provenformer.report.findings import find

Format = Literal["svg", "png", "pdf"]
FORMATS: tuple[Format, ...] = get_args(Format)


def known_formats(names: Sequence[str]) -> list[Format]:
    """File formats by name, each once."""
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise ProvenformerError(f"unknown format '{unknown[0]}'; choose from: {', '.join(FORMATS)}.")
    return [kind for kind in FORMATS if kind in names]


def report(
    folder: str | Path,
    output: str | Path,
    *,
    figures: str | Path | None = None,
    formats: Sequence[Format] = ("svg",),
    sequence: FloatArray | None = None,
    target: Target | TokenProgram | None = None,
) -> list[Path]:
    """Write a page about a saved network to `output`, and its figures to the folder `figures`; returns what was written.

    `sequence` (d, n) is the one to follow through the network, of a program on tokens their indices; `target` the function, or
    the program, where it is not a built-in one.
    Everything is drawn before anything is written. The drawing of a circuit is SVG whatever the formats are.
    """
    with extra("report", "a report"):
        from provenformer.report.circuit_page import page as circuit_page  # noqa: PLC0415
        from provenformer.report.page import page  # noqa: PLC0415
        from provenformer.report.pictures import pictures  # noqa: PLC0415
        from provenformer.report.pictures_circuit import pictures as circuit_pictures  # noqa: PLC0415
        from provenformer.report.render import figure_file  # noqa: PLC0415
    subject = load_subject(folder, target)
    if isinstance(subject, CircuitSubject):
        circuit = find_circuit(subject, sequence)
        drawn = circuit_pictures(circuit)
        text = circuit_page(circuit, drawn, str(folder))
    else:
        found = find(subject, sequence)
        drawn = pictures(found)
        text = page(found, drawn, str(folder))
    files = {Path(output): text.encode()}
    if figures is not None:
        for name, picture in drawn.items():
            figure = picture.draw()
            kinds: Sequence[Format] = ("svg",) if isinstance(figure, Circuit) else formats
            files |= {Path(figures) / f"{name}.{kind}": figure_file(figure, name, kind) for kind in kinds}
    write_together(files)
    return list(files)
