"""What is to be approximated: targets, their grid, the piecewise constant function, and distances."""
