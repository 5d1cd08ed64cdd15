"""A certificate: the claim d_p(f, g) <= bound, its terms, and what it rests on. certify.py derives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Context
from typing import Any, Literal

from provenformer.bounds.integrals import SAMPLES, Kind, p_sum

Domain = Literal["box", "space", "data", "tokens"]


@dataclass(frozen=True, repr=False)
class Certificate:
    """d_p(f, g) <= bound over `domain`. `kind` says what the claim about f rests on."""

    bound: float
    terms: dict[str, float]
    kind: Kind
    norm_order: float | None  # None: the largest entry, the sup norm
    domain: Domain
    basis: str  # one sentence: what is proved and what is taken on trust
    ramp: float  # width of the quantiser's ramps, in cells
    clip_low: tuple[float, ...]
    clip_high: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)

    def contributions(self) -> dict[str, float]:
        """The bound, split among its terms: they add up to it.

        The terms add up in p-th powers (see above), so each gets its share of the p-th power of what it belongs to.
        """
        terms, bound = self.terms, self.bound
        if self.norm_order is None or bound == 0 or "piecewise" not in terms:  # those of a circuit add up as they are
            return dict(terms)
        p = float(self.norm_order)
        main = p_sum((terms["piecewise"], terms["lost cubes"]), p)
        good = main + terms["softmax"] + terms["rounding"]
        whole = p_sum((good, terms["ramps"]), p)
        good_share, ramp_share = ((part / whole) ** p for part in (good, terms["ramps"]))
        shares = {"ramps": ramp_share}
        for name in ("softmax", "rounding"):
            shares[name] = good_share * terms[name] / good if good else 0.0
        for name in ("piecewise", "lost cubes"):
            shares[name] = good_share * main / good * (terms[name] / main) ** p if main else 0.0
        return {name: bound * shares[name] for name in terms}

    @property
    def bounds(self) -> dict[str, float]:
        """By precision in which the network is run, where more than float64 is known: of circuits, also float32."""
        return dict(self.details.get("bounds", {"float64": self.bound}))

    @property
    def short(self) -> str:
        """The inequality and its kind, without the function: claim.py has the claim in full."""
        if self.domain == "data":
            return f"largest error <= {rounded_up(self.bound, 3)} on {self.details.get('pairs', 'its')} pairs"
        if self.domain == "tokens":
            sizes = f"{self.details.get('vocab_size')}^{self.details.get('seq_len')}"
            return f"exact on all {sizes} sequences, margin {self.details.get('margin', 0):.3g}"
        if self.norm_order is None:
            return f"largest error <= {rounded_up(self.bound, 3)} over the {self.domain}, {self.kind}"
        relation = "about" if self.kind == "statistical" else "<="
        return (
            f"d_{in_full(self.norm_order)} {relation} {rounded_up(self.bound, 3)} over the {self.domain}, {self.kind}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"Certificate({self.short})"


def rounded_up(bound: float, digits: int = 5) -> str:
    """So many digits that are not below the bound."""
    text = f"{bound:.{digits}g}"
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    return text if not float(text) < bound else f"{float(upwards.create_decimal_from_float(bound)):.{digits}g}"


def in_full(number: float) -> str:
    """A number that a claim names, short where that loses nothing: d_2.0000004 is not d_2."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(float(number))


TERM_MEANINGS = {
    "piecewise": "the target against its value at the centre of each cube",
    "lost cubes": "cubes with two equal tokens, where the paper's network is 0",
    "ramps": "inputs so near a cell edge that a ReLU is still on its way",
    "softmax": "softmax in place of hardmax",
    "rounding": "float64, as executed",
}
CIRCUIT_TERM_MEANINGS = {
    "tables": "piecewise linear tables in place of functions and products",
    "attention": "maxima and permutations by softmax at a finite temperature",
    "rounding": "float64, as executed",
}
BASIS: dict[Kind, str] = {
    "rigorous": "f was evaluated on boxes in interval arithmetic; the bound is a theorem about the saved weights.",
    "lipschitz": "the bound holds if the Lipschitz constant claimed for f is right; sampling did not contradict it.",
    "statistical": f"f is a black box: an estimate from {SAMPLES:,} samples, which can miss what is rare; not a proof.",
}
TOKEN_BASIS = (
    "the program was traced to a graph of whole numbers, which was compared with it on sequences; that every sequence is "
    "answered exactly follows from ranges and margins, and is a theorem about the saved weights."
)
CIRCUIT_BASIS = (
    "f was traced to a graph, which was compared with f on samples; the bound is a theorem about the saved weights."
)
