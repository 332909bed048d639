"""Studies (the papers' tables) and benchmarks (against peers): not needed to use the library."""
