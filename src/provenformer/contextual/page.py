"""One HTML page, a table as text, figures and JSON about a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from provenformer.contextual import figures
from provenformer.contextual.examine import Examined
from provenformer.contextual.measure import MODE_WORDS, Mode
from provenformer.contextual.rounding import FORMATS
from provenformer.report.files import write_together
from provenformer.report.page import figure, number, render
from provenformer.report.pictures import Picture
from provenformer.report.render import figure_file

SHORT_HEADS = ["layer", "r", "smallest", "5 %", "median", "95 % interval", "random", "bits"]  # in a terminal
HEADS = [*SHORT_HEADS, *FORMATS, "typical", "cosine"]
HEADS_WORDS = (
    "Distances are over r. random: the median with random weights; float16 to int4: how many are no longer told apart after "
    "rounding; typical: median distance of a token from the mean, far below 1 where a few tokens make r; cosine: of two "
    "tokens, on average"
)


def write(found: Examined, output: Path, word: str | None = None) -> list[Path]:
    """index.html, contextual.json, table.md and figures/*.svg; all of them or none."""
    drawn = pictures(found, word)
    files = {
        output / "index.html": page(found, drawn).encode(),
        output / "contextual.json": (json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n").encode(),
        output / "table.md": table(found).encode(),
    }
    files |= {output / "figures" / f"{name}.svg": figure_file(one.draw(), name, "svg") for name, one in drawn.items()}
    write_together(files)
    return list(files)


def table(found: Examined) -> str:
    """Per mode a table of the layers, in Markdown."""
    out = [f"# {found.model} on {found.text}", "", f"{HEADS_WORDS}.", ""]
    for mode in found.measurement.model.modes:
        out += [
            f"{mode}: {MODE_WORDS[mode]}. {HEADS_WORDS}.",
            "",
            f"| {' | '.join(HEADS)} |",
            f"|{'---|' * len(HEADS)}",
        ]
        out += [f"| {' | '.join(cells)} |" for cells in text_rows(found, mode)]
        out.append("")
    return "\n".join(out)


def text_rows(found: Examined, mode: Mode) -> list[list[str]]:
    """The cells of a table, as text."""
    random = found.measurement.random
    rows = []
    for k, row in enumerate(found.measurement.model.modes[mode]):
        middle = row.quantile(0.5)
        twin = "" if random is None else f"{random.modes[mode][k].quantile(0.5).value:.4f}"
        lost = [f"{row.collisions[form]:,}" for form in FORMATS]
        rows.append([
            row.layer, f"{row.radius:.3g}", f"{row.ratio:.4f}", f"{row.quantile(0.05).value:.4f}", f"{middle.value:.4f}",
            f"{middle.low:.3f}..{middle.high:.3f}", twin, "equal" if row.bits is None else f"{row.bits:.1f}", *lost,
            f"{row.typical:.2f}", f"{row.anisotropy:.2f}",
        ])  # fmt: skip
    return rows


def pictures(found: Examined, word: str | None) -> dict[str, Picture]:
    """All figures with their words."""
    measured, random = found.measurement.model, found.measurement.random
    last = found.senses.layers[-1]
    chosen = word or max(last.words, key=lambda one: last.words[one])
    made = [
        Picture(
            "separation", "What the layers tell apart",
            "Per mode a line over the layers for the model and one for random weights, with bands.",
            "Distances of tokens that must differ, over the radius r of the layer. Lines are medians, bands go from 5 to 95 %, "
            "dotted is the smallest; zeros are not drawn. Grey: what the same model does with random weights.",
            lambda: figures.separation(found.measurement),
        )
    ]  # fmt: skip
    if measured.reach:
        made.append(Picture(
            "reach", "How far an edit reaches", "Lines over the distance from the edited word, one per layer.",
            "Median distance by which a token moves when a word so many places away is replaced.",
            lambda: figures.reach_profile(measured.reach, None if random is None else random.reach),
        ))  # fmt: skip
    made += [
        Picture(
            "example", f"“{found.example.sentences[0]}” and “{found.example.sentences[1]}”",
            "Lines over the layers for the words that the two sentences share.",
            "The example of Section 5.2: a contextual mapping gives the words that both sentences share different values.",
            lambda: figures.example_lines(found.example, found.random_example),
        ),
        Picture(
            "senses", "Senses of words", "The silhouette over the layers, with intervals, for the model and for random weights.",
            "1 where contexts of one sense are together and apart from those of the other, 0 where senses do not show.",
            lambda: figures.sense_curve(found.senses, found.random_senses),
        ),
        Picture(
            "word", f"“{chosen}” in its contexts", f"Points in the plane, one for each sentence with {chosen}.",
            "States of one word in different sentences on their two principal axes: in the embeddings, in the layer that tells "
            "its senses apart best, and in the last. The numbers are silhouettes in the full space.",
            lambda: figures.word_map(found.senses, chosen),
        ),
    ]  # fmt: skip
    return {one.name: one for one in made}


def page(found: Examined, drawn: dict[str, Picture]) -> str:
    """The page."""
    measured = found.measurement
    return render(
        "contextual.html",
        found.model,
        room="provenformer.contextual",
        title=f"Is {Path(found.model).name} a contextual mapping?",
        lead=_lead(found),
        asked=_asked(found),
        heads=HEADS,
        heads_words=HEADS_WORDS,
        modes=[
            (
                mode,
                MODE_WORDS[mode],
                text_rows(found, mode),
                rows[-1].worst,
                rows[-1].layer,
            )
            for mode, rows in measured.model.modes.items()
        ],
        line_rows=_line_rows(found),
        line_tokens=measured.model.line[0].tokens if measured.model.line else 0,
        reach_rows=[
            [row.layer, number(row.left), number(row.right), f"{min(row.share):.0%}", "yes" if row.everywhere else "no"]
            for row in measured.model.reach
        ],
        sense_rows=[
            [one.layer, number(one.silhouette), f"{one.low:.3f} to {one.high:.3f}", number(other.silhouette)]
            for one, other in zip(found.senses.layers, found.random_senses.layers, strict=True)
        ],
        figures={name: figure(picture) for name, picture in drawn.items()},
    )


def _lead(found: Examined) -> str:
    rows = found.measurement.model.modes
    first = next(iter(rows))
    mode: Mode = "edits" if "edits" in rows else first
    last = rows[mode][-1]
    random = found.measurement.random
    beside = "" if random is None else f"; with random weights {random.modes[mode][-1].quantile(0.5).value:.3f}"
    distinct = all(row.delta > 0 for row in (part[-1] for part in rows.values()))
    what = {
        "edits": "a one-word edit moves the other tokens",
        "swaps": "an exchange of two words moves the others",
    }.get(mode, "the nearest other token is away")
    room = f"{what} by {last.quantile(0.5).value:.3f} of the radius (median){beside}."
    if not distinct:
        return f"No: in the last layer two tokens that must differ are equal. In the middle, {room}"
    return f"Yes on these sentences: in the last layer all tokens that must differ do. How much room there is says more: {room}"


def _asked(found: Examined) -> list[tuple[str, Any]]:
    measured = found.measurement
    return [
        ("model", found.model),
        ("text", found.text),
        ("different sentences", number(measured.sequences)),
        ("left out as repeated", number(measured.repeated)),
        ("tokens measured", number(measured.tokens)),
        ("special tokens", measured.special_tokens),
        ("what must differ", measured.must_differ),
        ("nearest neighbours asked for", number(min(measured.queries, measured.tokens))),
        ("beside it", "the same configuration with random weights, seed " + str(measured.seed)),
    ]


def _line_rows(found: Examined) -> list[list[Any]]:
    random = found.measurement.random
    twins = random.line if random is not None else found.measurement.model.line
    return [
        [one.layer, "yes" if one.holds else "no", f"{one.margin:.2e}", f"{one.evenness:.3f}", f"{other.margin:.2e}"]
        for one, other in zip(found.measurement.model.line, twins, strict=True)
    ]
