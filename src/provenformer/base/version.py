"""The version, in one place: the package, its metadata and saved folders all read it here."""

__version__ = "0.2.0.dev0"
