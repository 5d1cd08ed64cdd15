"""Networks: what a layer computes, how it is evaluated and exported. Not how one is built."""
