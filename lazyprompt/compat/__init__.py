"""The names of other packages over this one, for programs written for them."""
