"""`bench overlay`: the five experiments of the overlay's thesis, in virtual time, and runs of many nodes."""
