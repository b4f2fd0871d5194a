"""Attention on mma.sync, for GPUs from sm_80 on: ldmatrix and cp.async, all warps load and compute."""
