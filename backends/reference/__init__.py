"""The reference target: NumPy, exact, slow."""
