"""One self-contained HTML page: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from provenformer.base.exact import size_of
from provenformer.base.version import __version__
from provenformer.certificates.certificate import TERM_MEANINGS, in_full, rounded_up
from provenformer.constructions.plan import Plan
from provenformer.functions import targets
from provenformer.look.context_ids import OUTSIDE, REPEATED, VALID
from provenformer.look.subject import Subject
from provenformer.report.figures import sequence_name
from provenformer.report.findings import Findings
from provenformer.report.pictures import Picture
from provenformer.report.render import inline_svg

Row = tuple[str, Any]  # what, and its value: text, or Markup with the exact number
THEOREMS = {True: "3 (positions are known)", False: "2 (permutation equivariant)"}
OTHERS_WORDS = {
    REPEATED: "A sequence with a repeated token ends elsewhere and gets the output 0.",
    OUTSIDE: "So does a sequence with a token outside the box.",
}
KIND_WORDS = {
    "rigorous": "proved",
    "lipschitz": "proved if the claimed Lipschitz constant is right",
    "statistical": "estimated by sampling, not proved",
}


def page(found: Findings, drawn: dict[str, Picture], folder: str) -> str:
    """The page for what was found; `folder` is named in the commands it gives."""
    subject = found.subject
    return render(
        "page.html",
        folder,
        title=f"{subject.target_name} as a Transformer",
        lead=_lead(found),
        asked=_asked(subject),
        terms=_terms(found),
        certificate=subject.certificate,
        sizes=_sizes(subject),
        stage_rows=[(stage, number(size)) for stage, size in found.stages.stages.items()],
        stage_unit=found.stages.unit,
        missing=subject.missing,
        on_grid=subject.grid is not None,
        id_words=_id_words(found),
        ids=found.ids,
        membership=_membership(found),
        variants=found.variants,
        shape_words=_shape_words(found),
        tokens=range(1, subject.seq_len + 1),
        moments=_moments(found),
        sequence=sequence_name(found.sequence),
        figures={name: figure(picture) for name, picture in drawn.items()},
    )


def render(template: str, folder: str, room: str = "provenformer.report", **values: Any) -> str:
    """A page from its template, which may be of another room; `folder` is named in the commands it gives."""
    loader = FunctionLoader(lambda name: (files(room) / name).read_text() if name == template else _source(name))
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, loader=loader
    )
    found = environment.get_template(template)
    return found.render(css=Markup(_source("page.css")), number=number, folder=folder, version=__version__, **values)


def _source(name: str) -> str:
    return (files("provenformer.report") / name).read_text()


def number(value: float | int | None) -> Markup:
    """A number for people, with the exact one for machines (and tests) in its `value`."""
    if value is None:
        return Markup("<span>not built</span>")
    if isinstance(value, int):
        shown = size_of(value)
        return Markup('<data value="{}">{}</data>').format(value, shown)
    exact = float(value)
    return Markup('<data value="{}">{}</data>').format(repr(exact), f"{exact + 0.0:,.6g}")  # + 0.0: no minus zero


def column(values: Any) -> Markup:
    """A token: a number, or several in brackets."""
    parts = Markup(", ").join(number(float(v)) for v in values)
    return parts if len(values) == 1 else Markup("({})").format(parts)


def figure(picture: Picture) -> Markup:
    """A figure with its title and caption."""
    label = f"figure-{picture.name}"
    svg = Markup(inline_svg(picture.draw(), picture.name, picture.alt))
    return Markup(
        '<figure id="{0}" aria-labelledby="{0}-title"><div class="scroll" tabindex="0" role="region" aria-label="{1}">'
        '{2}</div><figcaption><strong id="{0}-title">{1}.</strong> {3}</figcaption></figure>'
    ).format(label, picture.title, svg, picture.caption)


def _lead(found: Findings) -> str:
    network, certificate = found.subject.network, found.subject.certificate
    blocks = f"{network.blocks:,} Transformer blocks, constructed and not trained"
    if certificate.norm_order is None:
        return f"{blocks}, reproduce every given pair with an error of at most {certificate.bound:.3g}."
    distance = f"within {rounded_up(certificate.bound, 4)} of the target in d_{in_full(certificate.norm_order)}"
    return f"{blocks}, are {distance}: {KIND_WORDS[certificate.kind]}."


def _asked(subject: Subject) -> list[Row]:
    certificate, grid = subject.certificate, subject.grid
    rows: list[Row] = [("target", subject.target_name)]
    if subject.target is not None and targets.is_built_in(subject.target):
        rows.append(("formula", targets.describe(subject.target.name)))
    rows += [("numbers per token, d", number(subject.token_dim)), ("tokens, n", number(subject.seq_len))]
    if subject.data is not None:
        rows.append(("pairs to memorise", number(len(subject.data[0]))))
    else:
        ends = [f"[{a:g}, {b:g}]" for a, b in zip(*subject.support, strict=True)]
        rows.append(("box", ends[0] if len(set(ends)) == 1 else " x ".join(ends)))
    if certificate.norm_order is not None:
        rows.append(("norm order, p", number(float(certificate.norm_order))))
        if "tolerance" in certificate.details:  # not when the grid was asked for
            rows.append(("tolerance", number(float(certificate.details["tolerance"]))))
    rows += [
        ("theorem", THEOREMS[subject.positional]),
        ("construction", f"{subject.construction}: {subject.how.in_words}"),
    ]
    if grid is not None:
        rows.append(("cells per axis, N", number(grid.cells_per_axis)))
    return rows


def _terms(found: Findings) -> list[tuple[str, Markup, Markup, str]]:
    """Name, term, share of the bound, meaning."""
    terms = found.subject.certificate.terms
    return [
        (name, number(float(value)), number(float(found.contributions[name])), TERM_MEANINGS.get(name, ""))
        for name, value in terms.items()
    ]


def _sizes(subject: Subject) -> list[Row]:
    network = subject.network
    heads, head_dim, hidden = network.shape
    rows: list[Row] = [
        ("blocks", number(network.blocks)),
        ("layers", number(network.layers)),
        ("heads, head size, hidden units", f"{heads}, {head_dim}, {hidden:,}"),
        ("parameters", number(network.parameters)),
    ]
    plan: Plan | None = subject.plan
    if plan is not None:
        rows += [
            ("contexts", number(plan.contexts)),
            ("bits of the largest id", number(plan.id_bits)),
            ("cubes lost (output 0)", f"{float(plan.lost_share):.2%}"),
            ("a residual network (Lin & Jegelka) would need, layers", number(plan.residual_layers)),
        ]
    elif "id_bits" in subject.certificate.details:
        rows.append(("bits of the largest id", number(int(subject.certificate.details["id_bits"]))))
    return rows


def _id_words(found: Findings) -> str:
    others = [words for kind, words in OTHERS_WORDS.items() if kind in found.ids.kinds]
    if others == [OTHERS_WORDS[OUTSIDE]]:
        others = ["A sequence with a token outside the box ends above them and gets the output 0."]
    return " ".join([found.subject.how.ids_in_words, *others])


def _shape_words(found: Findings) -> str:
    """What to see in the table of other shapes."""
    rows = found.variants
    words = "More hidden units mean fewer blocks"
    if found.subject.loses_cubes:
        words += "; the other constructions also keep the cubes that the paper's loses"
    elif any(row.bound is not None and not row.shown for row in rows):
        words += "; what wider layers cost is rounding, the only term of the bound that changes"
    planned = any(row.bound is None for row in rows)
    return words + (". Rows without a bound are planned, not built." if planned else ".")


def _membership(found: Findings) -> list[tuple[str, int, int]]:
    """Kind of sequence, how many were run, how many of them end inside [id_low, id_high)."""
    table = found.ids
    rows = []
    for kind in (VALID, REPEATED, OUTSIDE):
        chosen = [i for i, k in enumerate(table.kinds) if k == kind]
        if chosen:
            rows.append((kind, len(chosen), int(table.inside[chosen].sum())))
    return rows


def _moments(found: Findings) -> list[tuple[str, str, list[Markup]]]:
    """Label, layers done, one cell per token; the target's values last."""
    rows = [(m.label, f"{m.layers:,}", [column(token) for token in m.values.T]) for m in found.moments]
    if found.wanted is not None:
        name = "target" if found.subject.target is not None else "given output"
        rows.append((name, "", [column(token) for token in found.wanted.T]))
    return rows
