"""Tessera compiles models into few fused kernels and runs them."""
