"""The command line: `provenformer COMMAND`. Each command is a thin wrapper around one public function."""

import sys

import typer

from provenformer.errors import ProvenformerError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.callback()
def _root() -> None:
    """Construct Transformers that provably approximate a function."""


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="BERT with cheaper token mixers in place of self-attention (Section 6).",
)
def bert(context: typer.Context) -> None:
    # Imported here, so that the rest of the command line starts fast and works without torch.
    try:
        from provenformer.bert.cli import app as bert_app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("provenformer"):
            raise
        remedy = "install the extra: pip install 'provenformer[bert]'"
        raise ProvenformerError(f"`provenformer bert` needs {error.name}, which is not installed; {remedy}") from None
    bert_app(context.args, prog_name="provenformer bert")


def main() -> None:
    """Run the app; bad input is one line on stderr and exit code 2, never a stack trace."""
    try:
        app()
    except ProvenformerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
