"""Sizes per stage, and what depth costs in width and the other way round."""

from __future__ import annotations

from dataclasses import dataclass, replace

from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certify import per_entry, rounding_error, with_terms
from provenformer.compiler.tables import softmax_relu_network
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.constructions.registry import plan
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.look.subject import Subject
from provenformer.networks.stack import block_parameters

SUM, WIDE = "sum", "wide"  # the shapes to compare with
HIDDEN_UNITS = (4, 32)
LAYERS_TO_CERTIFY = 2000  # each row of the table is built and certified up to this size


@dataclass(frozen=True)
class Variant:
    """A network for the same target and grid in another shape."""

    construction: str
    hidden_units: int
    blocks: int
    parameters: int
    bound: float | None  # certified; None when it was not built, or float64 does not carry it
    shown: bool = False  # the network of the report


@dataclass(frozen=True)
class StageSizes:
    """How much of `unit` each stage of a network has, in order: of what the network has much of."""

    unit: str
    stages: dict[str, int]


def stage_sizes(subject: Subject) -> StageSizes:
    """Layers per stage, or hidden units where a network has few layers and many of those."""
    network = subject.network
    if subject.how.has_channels:
        return StageSizes("hidden units", network.hidden_units)
    return StageSizes("layers", network.stages)


def variants(subject: Subject) -> list[Variant]:
    """Width for depth: this network, the deep and thin shapes of its grid, and the wide one."""
    if subject.grid is None:
        return []
    g, network = subject.grid, subject.network
    shown = Variant(
        subject.construction, network.hidden_dim, network.blocks, network.parameters, subject.certificate.bound, True
    )
    thin, wide = (
        plan(g.token_dim, g.seq_len, g.cells_per_axis, construction, subject.positional) for construction in (SUM, WIDE)
    )
    others = [_planned(thin, units) for units in HIDDEN_UNITS] + [_planned(wide, wide.hidden_dim)]
    rows = [row for row in others if (row.construction, row.hidden_units) != (shown.construction, shown.hidden_units)]
    if _certifiable(subject, thin):
        rows = _certified(subject, rows)
    return sorted([*rows, shown], key=lambda row: (registry.NAMES.index(row.construction), row.hidden_units))


def _planned(sizes: Plan, hidden_units: int) -> Variant:
    """Sizes without building: with r > 4 units, r / 2 value bumps share a layer."""
    g = sizes.grid
    if hidden_units == sizes.hidden_dim:
        return Variant(sizes.construction, sizes.hidden_dim, sizes.blocks, sizes.parameters, None)
    bumps = g.column_layers(registry.get(sizes.construction).contexts(sizes.positional))
    blocks = sizes.blocks - bumps + -(-bumps // (hidden_units // 2))
    positions = g.token_dim * g.seq_len if sizes.positional else 0
    parameters = blocks * block_parameters(g.token_dim, 2, 1, hidden_units) + positions
    return Variant(sizes.construction, hidden_units, blocks, parameters, None)


def _certifiable(subject: Subject, thin: Plan) -> bool:
    """With a temperature the bound has other terms; over the whole space the wide network promises nothing."""
    known = subject.target is not None and not subject.how.has_temperature
    return known and subject.certificate.domain == "box" and thin.layers <= LAYERS_TO_CERTIFY


def _certified(subject: Subject, rows: list[Variant]) -> list[Variant]:
    """The same rows with sizes and bounds of networks that were built: all terms but the rounding are this network's."""
    target, grid, certificate = subject.target, subject.grid, subject.certificate
    if target is None or grid is None:
        return rows
    piecewise = PiecewiseConstant.of(target, grid, registry.get(SUM).contexts(subject.positional))
    flat = piecewise.values.reshape(-1, grid.token_dim)
    rounding = rounding_error(registry.get(SUM).build(piecewise).budget, flat, grid.seq_len)
    whole = per_entry(target, float(certificate.norm_order or 1))
    thin_certificate = with_terms(certificate, rounding=rounding * whole)

    def build(row: Variant) -> Variant:
        how = registry.get(row.construction)
        network, bounded = softmax_relu_network(how, piecewise, thin_certificate, row.hidden_units)
        return replace(row, blocks=network.blocks, parameters=network.parameters, bound=bounded.bound)

    built = []
    for row in rows:
        try:
            built.append(build(row))
        except ProvenformerError:  # float64 does not carry this shape: its row has no bound
            built.append(row)
    return built
