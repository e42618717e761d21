"""Keyed randomness: the noise key, AES as a function, and the laws drawn from it."""
