"""The general emitter: any tile program, on any GPU from sm_80 on.

A block of threads computes one tile of a grid. Tiles lie in shared memory; each *stage* of the program (see `plan`) is
a loop over the elements of a tile that the threads share, and stages are separated by barriers.
"""
