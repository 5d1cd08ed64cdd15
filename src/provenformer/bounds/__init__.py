"""What can be proved about a function on boxes: intervals, slopes, integrals."""
