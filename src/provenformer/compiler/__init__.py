"""From a function, a data set or a token program to a network with a certificate."""
