"""What runs kernels: one folder per target."""
