"""Verification problems with known answers: ONNX networks and VNN-LIB properties, made from certificates (docs/benchmark.md)."""
