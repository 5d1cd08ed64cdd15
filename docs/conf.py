"""The documentation site: `make docs`. Nothing on it is loaded from elsewhere."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
from docutils import nodes
from docutils.parsers.rst import Directive, directives
from latex2mathml.converter import convert
from sphinx.util.logging import getLogger
from typer.cli import get_docs_for_click
from typer.main import get_command

from provenformer.report.style import INK

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]  # examples.py, and the package `experiments`

from examples import run_python  # noqa: E402

project = "provenformer"
html_title = "provenformer"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_static_path = ["_static", "_generated/fonts"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
exclude_patterns = ["_figures", "_generated"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
# Signatures name types that other libraries document, and some of ours that one does not construct by hand.
nitpick_ignore_regex = [
    ("py:class", r"(collections\.abc|fractions|nn|numpy|pathlib|torch|transformers)\..*"),
    (
        "py:class",
        r"(.*\.)?(ArrayLike|AttentionLayer|Check|Claim|DTypeLike|FeedForwardLayer|FloatNetwork|Mixer|Path|PiecewiseConstant|State|Step|Traced"
        r"|TransformerBridge|LayerMeasure|Line|Measured|Measurement|Occurrence|Probe|Quantile|Reach|SenseLayer|Senses|TwoSentences)",
    ),
]

# A font for formulas, where the reader has none: STIX, which comes with matplotlib under its own licence.
FONTS = DOCS / "_generated" / "fonts"
FONTS.mkdir(parents=True, exist_ok=True)
for name in ("STIXGeneral.ttf", "LICENSE_STIX"):
    shutil.copyfile(Path(mpl.get_data_path(), "fonts", "ttf", name), FONTS / name)

logger = getLogger(__name__)
FIGURES = DOCS / "_figures"
mpl.rcParams.update({"svg.hashsalt": "docs", "svg.fonttype": "none"})


class Picture(Directive):
    """An SVG of a page inside it, so that its text takes the colour of the page: light or dark."""

    required_arguments = 1
    has_content = True
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        svg = (FIGURES / f"{self.arguments[0]}.svg").read_text()
        svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
        opening = f'<figure class="picture"><div role="img" aria-label="{escape(self.options["alt"])}">'
        caption = nodes.container(classes=["picture-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [nodes.raw("", f"{opening}{svg}</div></figure>", format="html"), caption]


def make_pictures(_: Any) -> None:
    """The pictures of tour and circuits by the pages' own code, those of the questions from the JSON of the experiments."""
    from experiments.questions.figures import draw_all

    FIGURES.mkdir(exist_ok=True)
    for page in ("tour.md", "circuits.md", "lens.md"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run_python(DOCS / page, FIGURES)
        stated = {line.removeprefix("# ") for line in (DOCS / page).read_text().splitlines()}
        for line in printed.getvalue().splitlines():
            if line not in stated:
                logger.warning("%s prints what it does not say: %s", page, line)
    draw_all(FIGURES)


def write_commands(_: Any) -> None:
    """The command line, as Typer documents it."""
    from provenformer.cli import app
    from provenformer.cli.bert import app as bert_app

    folder = DOCS / "_generated"
    folder.mkdir(exist_ok=True)
    for name, each in (("provenformer", app), ("provenformer bert", bert_app)):
        command = get_command(each)
        context = command.make_context(name, [], resilient_parsing=True)
        text = get_docs_for_click(obj=command, ctx=context, name=name)
        (folder / f"{name.replace(' ', '-')}.md").write_text(text)


def inline_math(translator: Any, node: nodes.Element) -> None:
    """A formula as MathML, made at build time: browsers typeset it by themselves, in the colour of the text."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display_math(translator: Any, node: nodes.Element) -> None:
    """A formula on a line of its own, which scrolls where it is wider than the page."""
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_directive("picture", Picture)
    app.add_html_math_renderer("mathml", (inline_math, None), (display_math, None))
    app.connect("builder-inited", make_pictures)
    app.connect("builder-inited", write_commands)
