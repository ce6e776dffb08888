"""Code in C++ for a CPU: compiled on the machine where it runs, for that machine, and kept in the user's cache."""
