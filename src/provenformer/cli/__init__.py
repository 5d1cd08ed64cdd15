"""The command line: `provenformer COMMAND`. Each command is a thin wrapper around one public function."""

from provenformer.cli.main import app, main

__all__ = ["app", "main"]
