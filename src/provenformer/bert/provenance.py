"""Where a result comes from, under its earlier name: experiments outside `bert` ask as well."""

from provenformer.bert.runtime.provenance import provenance

__all__ = ["provenance"]
