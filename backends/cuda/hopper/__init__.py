"""The fast path for Hopper (sm_90a): tiles that fit wgmma become a warp-specialised, persistent kernel."""
