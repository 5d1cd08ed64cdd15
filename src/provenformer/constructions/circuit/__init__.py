"""The circuit construction: the graph of a formula as a Transformer, with a bound in the sup norm."""
