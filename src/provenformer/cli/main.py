"""The program: all commands together, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.version import __version__
from provenformer.cli import bert, constructing, contextual, showing, using
from provenformer.cli.options import console
from provenformer.cli.wording import in_options

ABOUT = """Construct a Transformer for a sequence-to-sequence function, without training; a certificate bounds its distance.

A first look: `provenformer demo`. A network of your own: `compile` (a built-in target, or module:function), then `verify`
(derives the bound again from the weights), `run`, `report`, `explore`. Sizes before building: `plan`. A data set in the
weights: `memorize`. A program on tokens: `tokens`. Cheaper mixers for BERT: `bert`. Is a trained model a contextual mapping:
`contextual`."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=ABOUT)


def _version(asked: bool) -> None:
    if asked:
        console.print(f"provenformer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _asked: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": constructing.demo,
    "targets": constructing.list_targets,
    "plan": constructing.plan,
    "compile": constructing.compile_target,
    "verify": using.verify,
    "run": using.run,
    "distance": using.distance,
    "trace": using.trace,
    "memorize": constructing.memorize,
    "tokens": constructing.compile_program,
    "benchmark": constructing.benchmark,
    "report": showing.write_report,
    "explore": showing.explore,
    "contextual": contextual.contextual,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(bert.app, name="bert")


def main() -> None:
    """Run the app; bad input is one line on stderr and exit code 2, never a stack trace."""
    try:
        app()
    except ProvenformerError as error:
        # The bench of mixers is asked by settings files, which have the names of the library.
        _fail(str(error) if sys.argv[1:2] == ["bert"] else in_options(str(error)))
    except (MemoryError, RecursionError) as error:
        _fail(f"this needs more than this machine has ({error}); use smaller sizes.")
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(reason: str) -> None:
    print(f"error: {one_line(reason)}", file=sys.stderr)
    sys.exit(2)
