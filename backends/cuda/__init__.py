"""The CUDA target: CUDA C++ made from tile IR, compiled with NVRTC, launched on the caller's stream."""
