"""Networks, their parameters as one vector, and pre-trained weights."""
