"""Functions as people of different trades write them in numpy, none with circuits in mind."""
