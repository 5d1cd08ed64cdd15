"""Saving and loading: a folder with network.safetensors, certificate.json and manifest.json, and nothing that could run code.

Weights shared by all layers of a run are stored once and broadcast when loaded.
"""

from provenformer.base.files import file_digest as file_hash
from provenformer.storage.folder import NETWORKS, Saved, load, manifest_hash, save
from provenformer.storage.schema import CERTIFICATE, FORMAT, MANIFEST, NETWORK
from provenformer.storage.spec import built_in_program, import_function, program_spec, source_digest, target_spec

__all__ = [
    "CERTIFICATE",
    "FORMAT",
    "MANIFEST",
    "NETWORK",
    "NETWORKS",
    "Saved",
    "built_in_program",
    "file_hash",
    "import_function",
    "load",
    "manifest_hash",
    "program_spec",
    "save",
    "source_digest",
    "target_spec",
]
