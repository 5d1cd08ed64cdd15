"""Figures as bytes: files for print, or SVG for the page in the page's own text colour."""

from __future__ import annotations

import re
from html import escape
from io import BytesIO

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from provenformer.anatomy.circuit import Circuit
from provenformer.report import Format
from provenformer.report.style import INK

DOTS_PER_INCH = 200


def figure_file(figure: Figure | Circuit, name: str, file_format: Format) -> bytes:
    """A figure on white, the same bytes every time. The drawing of a circuit is SVG and follows light and dark."""
    if isinstance(figure, Circuit):
        return figure.to_svg().encode()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[file_format]
    out = BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "pdf.fonttype": 42}):
        figure.savefig(out, format=file_format, dpi=DOTS_PER_INCH, facecolor="white", metadata=dates)
    return out.getvalue()


def inline_svg(figure: Figure | Circuit, name: str, label: str) -> str:
    """A figure as an <svg> element: transparent, real text, ink in `currentColor`, no ids that another figure has."""
    if isinstance(figure, Circuit):
        return figure.to_svg(standalone=False)
    out = BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.set(facecolor="none", dpi=144)
        # savefig would draw twice: first for the layout alone
        FigureCanvasSVG(figure).print_svg(out, metadata=nothing)  # type: ignore[no-untyped-call]
    text = out.getvalue().decode()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    sizes = re.search(r'<svg [^>]*?width="([\d.]+)pt"', text)
    inches = float(sizes.group(1)) / 72 if sizes else 7.0
    width = f"{inches * 96:.0f}px"
    opening = f'<svg role="img" aria-label="{escape(label)}" style="width:{width};min-width:min(34rem,{width})"'
    return re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"|<svg ', _resized(opening), text, count=1)


def _resized(opening: str) -> str:
    return opening.replace("\\", r"\\") + r" \1\2"
