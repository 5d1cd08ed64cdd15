"""Networks for the page: planned first, built in a process of their own with a time limit, and kept for a while."""

from __future__ import annotations

import multiprocessing
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, TooLarge
from provenformer.base.exact import Array
from provenformer.compiler import compile as compiler
from provenformer.compiler.tables import Compiled, plan_for
from provenformer.constructions.base import Construction, Naming
from provenformer.constructions.plan import Plan
from provenformer.constructions.relax import TINY_WIDTH, inverse_temperature
from provenformer.explore.circuits import PROGRAM, CircuitSettings, build_circuit
from provenformer.explore.settings import FEWEST_CELLS, LIMITS, FieldError, Knobs, Settings, fits, most_cells
from provenformer.look.circuit import CircuitSubject
from provenformer.look.subject import Subject
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import FeedForward, ModifiedNetwork, ThreePiece
from provenformer.networks.stages import VALUES

SECONDS = 20.0  # for one network
CLOSING = "The explorer is being closed."
KEPT = 24  # networks in memory, a few hundred kilobytes each
SAMPLES = 128  # sequences on which a relaxed network is compared with the modified one
ONE_UNIT = ThreePiece.window(Fraction(-1, 2), Fraction(1, 2), intercept=1)  # what a value bump reacts to
NOTICEABLE = 1e-3  # a difference of outputs that counts as wrong there


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: there is one per settings
class Built:
    """A compiled network and what the page needs beside it."""

    settings: Settings
    compiled: Compiled

    @cached_property
    def subject(self) -> Subject:
        """The network as report and explorer look at it."""
        return Subject.of(self.compiled)

    @property
    def how(self) -> Construction:
        """The construction."""
        return self.subject.how

    @property
    def by_layer(self) -> bool:
        """Whether the layers of the softmax/ReLU network are those of the modified one; wider ones do many steps at once."""
        return not self.how.has_channels and self.compiled.network.hidden_dim == TINY_WIDTH

    @property
    def positional(self) -> bool:
        """Whether the order of tokens matters."""
        return not self.compiled.target.equivariant

    @cached_property
    def in_cells(self) -> ModifiedNetwork:
        """The modified network that counts in cells, as the softmax/ReLU network does: ids are whole numbers."""
        return self.how.in_cells(self.compiled.piecewise)

    @cached_property
    def naming(self) -> Naming:
        """How contexts get their ids there."""
        return self.how.naming(self.compiled.grid, self.subject.positional)

    @cached_property
    def bumps(self) -> tuple[int, FeedForward]:
        """The run of value bumps, and its place among the runs of the modified network."""
        runs = enumerate(self.in_cells.runs)
        return next(
            (i, run) for i, run in runs if isinstance(run, FeedForward) and run.phi == ONE_UNIT and run.stage == VALUES
        )

    @cached_property
    def bump_ids(self) -> FloatArray:
        """The ids of the value bumps, in the order of their layers: downwards."""
        return -self.bumps[1].b_1.to_float()

    @property
    def context_layers(self) -> int:
        """How many layers there are up to the end of the contextual map."""
        runs = self.in_cells.runs
        first = next(i for i, run in enumerate(runs) if run.stage == VALUES)
        return sum(len(run) for run in runs[:first])

    @property
    def bumps_start(self) -> int:
        """How many layers come before the value bumps."""
        return sum(len(run) for run in self.in_cells.runs[: self.bumps[0]])


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The softmax/ReLU network for given knobs, and how often it is wrong."""

    network: FloatNetwork
    temperature: float | None  # log2; None where the construction has none
    ramp: float  # log2
    wrong_share: float  # of sampled sequences, outputs further than NOTICEABLE from the modified network's


@lru_cache(maxsize=KEPT)
def relaxed(built: Built, knobs: Knobs) -> Relaxed:
    """Lemma 9 with the page's temperature and ramp instead of the certified ones."""
    c = built.compiled
    certified = float(np.log2(c.certificate.ramp))
    ramp = certified if knobs.ramp is None else knobs.ramp
    how = built.how
    temperature = None
    network = c.network
    if ramp != certified:
        clip = (np.array(c.certificate.clip_low), np.array(c.certificate.clip_high))
        width = TINY_WIDTH if how.has_channels else network.hidden_dim
        network = how.relaxed(c.piecewise, 2.0**ramp, clip, width)
    if how.has_temperature:
        temperature = float(np.log2(inverse_temperature())) if knobs.temperature is None else knobs.temperature
        network = with_temperature(network, 2.0**temperature)
    x = c.target.sample(SAMPLES, seed=1)
    off = np.abs(network(x) - c.piecewise(x)).max(axis=(1, 2))
    return Relaxed(network, temperature, ramp, float((off > NOTICEABLE).mean()))


def with_temperature(network: FloatNetwork, sharp: float) -> FloatNetwork:
    """The same weights with another inverse temperature: queries carry it."""
    factor = sharp / inverse_temperature()
    tensors = {
        name: value * factor if name.endswith((".W_Q", ".b_Q")) else value for name, value in network.tensors().items()
    }
    layout = {"token_dim": network.token_dim, "seq_len": network.seq_len, **network.layout()}
    return network.of_tensors(layout, tensors, network.positions)


def require_buildable(settings: Settings) -> None:
    """Refuse, before anything is built, what the machine cannot follow."""
    if settings.cells_per_axis is not None:
        require_small(plan_for(settings.function(), settings.cells_per_axis, settings.construction), settings)


def require_small(sizes: Plan, settings: Settings) -> None:
    """The size limit of the explorer, on a plan; the sentence belongs to the field that decides the size."""
    if fits(sizes):
        return
    needed, of = sizes.size
    shown = f"{needed:,}" if needed < 10**15 else f"more than 10^{len(str(needed)) - 1}"
    field, remedy = "tolerance", "Use a larger tolerance or fewer tokens."
    if settings.cells_per_axis is not None:
        field, remedy = "cells", f"Here N may be up to {most_cells(settings)}."
    raise FieldError(field, f"This network needs {shown} {of}; the explorer builds up to {LIMITS[of]:,}. {remedy}")


def build(settings: Settings) -> Compiled:
    """Compile, within the limits of the explorer."""
    f = settings.function()
    _, counted = plan_for(f, FEWEST_CELLS, settings.construction).size
    return compiler.compile(
        f, tolerance=settings.tolerance, cells_per_axis=settings.cells_per_axis,
        norm_order=settings.norm_order, construction=settings.construction, kind=settings.kind, max_layers=LIMITS[counted],
    )  # fmt: skip


class Workshop:
    """Builds one network at a time, each in a process that is ended when it takes too long; keeps the latest."""

    def __init__(self, seconds: float = SECONDS, kept: int = KEPT) -> None:
        self.seconds, self.kept = seconds, kept
        self._recent: OrderedDict[Settings | CircuitSettings, Any] = OrderedDict()
        self._busy, self._shelf = Lock(), Lock()
        self._closed = False
        self._process: Any = None  # that builds at the moment
        methods = multiprocessing.get_all_start_methods()
        self._processes: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            # Imported once: every build is then a fork that starts at once. The command's own module saves a second import.
            self._processes.set_forkserver_preload(["provenformer.cli"])

    def warm(self) -> None:
        """Start the process that building processes are forked from; it imports the library while the page is read."""
        process = self._processes.Process(target=_nothing, daemon=True)
        process.start()
        process.join()

    def get(self, settings: Settings) -> Built:
        """The network for these settings, built if it is not at hand."""
        if (known := self._known(settings)) is None:
            require_buildable(settings)
        built: Built = known or self._made(settings, lambda: Built(settings, self._build(settings)))
        return built

    def here(self, settings: Settings) -> Built:
        """The same, built in this process: for a network that is known to be small."""
        built: Built = self._known(settings) or self._made(settings, lambda: Built(settings, build(settings)))
        return built

    def circuit(self, settings: CircuitSettings) -> CircuitSubject:
        """The circuit for these settings, built if it is not at hand."""
        found: CircuitSubject = self._known(settings) or self._made(settings, lambda: self._build_circuit(settings))
        return found

    def close(self) -> None:
        """Build nothing more: what is under way is ended, and whoever waits is told so."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    def keep(self, settings: Settings | CircuitSettings, made: Any) -> None:
        """Remember a network; the one not used for longest goes."""
        with self._shelf:
            self._recent[settings] = made
            if len(self._recent) > self.kept:
                self._recent.popitem(last=False)

    def _made(self, settings: Settings | CircuitSettings, make: Callable[[], Any]) -> Any:
        if not self._busy.acquire(timeout=self.seconds):
            raise ProvenformerError("Another network is being built; try again in a moment.")
        try:
            if (made := self._known(settings)) is None:
                self.keep(settings, made := make())
            return made
        finally:
            self._busy.release()

    def _known(self, settings: Settings | CircuitSettings) -> Any:
        with self._shelf:
            if settings in self._recent:
                self._recent.move_to_end(settings)
            return self._recent.get(settings)

    def _build(self, settings: Settings) -> Compiled:
        result = self._in_a_process(build, settings, _too_slow(settings, self.seconds))
        if isinstance(result, Compiled):
            return result
        raise _in_the_words_of_the_page(result, settings)

    def _build_circuit(self, settings: CircuitSettings) -> CircuitSubject:
        remedy = "a smaller alphabet" if settings.target.startswith(PROGRAM) else "a larger tolerance"
        slow = f"This circuit takes more than {self.seconds:g} s to build. Use fewer tokens or {remedy}."
        result = self._in_a_process(build_circuit, settings, FieldError("seq_len", slow))
        if isinstance(result, CircuitSubject):
            return result
        raise result

    def _in_a_process(self, job: Callable[[Any], Any], settings: Any, too_slow: FieldError) -> Any:
        """What the job makes of the settings, or the error that says why not; ended when it takes too long."""
        receive, send = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=_do_and_send, args=(job, settings, send), daemon=True)
        process.start()
        self._process = process
        send.close()
        try:
            if self._closed:
                raise ProvenformerError(CLOSING)
            if not receive.poll(self.seconds):
                raise too_slow
            return receive.recv()
        except EOFError as error:
            if self._closed:
                raise ProvenformerError(CLOSING) from None
            raise RuntimeError("the building process ended without a result") from error
        finally:
            self._process = None
            process.kill()
            process.join()
            receive.close()


def _nothing() -> None:
    """The first building process has nothing to build."""


def _do_and_send(job: Callable[[Any], Any], settings: Any, send: Connection) -> None:
    """In the building process: the network, or the error that says why not."""
    try:
        send.send(job(settings))
    except ProvenformerError as error:
        send.send(error)


def _too_slow(settings: Settings, seconds: float) -> FieldError:
    if settings.kind == "rigorous":
        remedy = "Choose the Lipschitz certificate, which is much faster and looser, or fewer cells or tokens."
        return FieldError("kind", f"The rigorous certificate takes more than {seconds:g} s at this size. {remedy}")
    return FieldError("cells", f"This network takes more than {seconds:g} s to build. Use fewer cells or tokens.")


def _in_the_words_of_the_page(error: ProvenformerError, settings: Settings) -> FieldError:
    """Why there is no network, beside the field that decides; with a tolerance the grid is not the user's to know."""
    if settings.tolerance is None:
        return FieldError("cells", _sentence(error))
    if isinstance(error, TooLarge):
        coarsest = plan_for(settings.function(), FEWEST_CELLS, settings.construction)
        _, of = coarsest.size
        swept = coarsest.attention_layers > 1
        remedy = (
            "a larger tolerance, fewer tokens or the sum construction"
            if swept
            else "a larger tolerance or fewer tokens"
        )
        needs = f"needs more than the {LIMITS[of]:,} {of} that the explorer builds"
        return FieldError("tolerance", f"The tolerance {settings.tolerance:g} {needs}. Use {remedy}.")
    return FieldError("tolerance", _sentence(error))


def _sentence(error: ProvenformerError) -> str:
    reason = str(error)
    return reason[0].upper() + reason[1:]


def columns_of(state: Array) -> list[list[float]]:
    """A state (d, n) as one list per token."""
    return [[float(v) for v in column] for column in np.asarray(state).T]
