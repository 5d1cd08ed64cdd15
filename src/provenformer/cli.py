"""The command line: `provenformer COMMAND`. Each command is a thin wrapper around one public function."""

import sys

import typer

from provenformer.errors import ProvenformerError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.callback()
def _root() -> None:
    """Construct Transformers that provably approximate a function."""


def main() -> None:
    """Run the app; bad input is one line on stderr and exit code 2, never a stack trace."""
    try:
        app()
    except ProvenformerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
