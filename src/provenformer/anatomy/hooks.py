"""What TransformerLens shows under its hook names, in the words of the circuit."""

from __future__ import annotations

from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.nodes import Node
from provenformer.networks.circuit import CircuitNetwork


def hook_names(network: CircuitNetwork, circuit: Circuit) -> dict[str, tuple[str, ...]]:
    """By hook name: what each channel of the residual stream holds there, and what each head and each unit adds to.

    A channel that holds nothing yet, and a head or unit that adds nothing, is "". Blocks without heads, or without units, have
    no such name: all that TransformerLens shows there is padding.
    """
    named = any(network.positions[c].any() for c in range(network.token_dim, network.model_dim))
    held = [name if named and network.positions[c].any() else "" for c, name in enumerate(network.channel_names)]
    made: dict[int, list[Node]] = {}
    for node in circuit.nodes:
        if node.channel is not None:
            made.setdefault(node.layers, []).append(node)
    found: dict[str, tuple[str, ...]] = {}

    def show(hook: str, layers: int) -> None:
        for node in made.get(layers, []):
            if node.channel is not None:
                held[node.channel] = _words(node)
        found[hook] = tuple(held)

    show("blocks.0.hook_resid_pre", 0)
    for b, block in enumerate(network.circuit_blocks):
        by_heads, by_units = made.get(2 * b + 1, []), made.get(2 * b + 2, [])
        if block.heads:
            found[f"blocks.{b}.attn.hook_pattern"] = tuple(
                "; ".join(_words(node) for node in by_heads if h in node.heads) for h in range(len(block.heads))
            )
        show(f"blocks.{b}.hook_resid_mid", 2 * b + 1)
        if len(block.b_1):
            found[f"blocks.{b}.mlp.hook_post"] = tuple(
                "; ".join(_words(node) for node in by_units if block.W_2[node.channel, unit])
                for unit in range(len(block.b_1))
            )
        show(f"blocks.{b}.hook_resid_post", 2 * b + 2)
    return found


def _words(node: Node) -> str:
    return f"{node.name} = {node.words}"
