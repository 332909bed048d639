"""Second moments and what can be solved from them: response matching, batch-norm folding and re-estimation."""

from brickwork.moments.batch_norm import fold_batch_norm, reestimate_batch_norm
from brickwork.moments.collect import collect_moments
from brickwork.moments.gathering import Source
from brickwork.moments.gram import Moments
from brickwork.moments.match import LayerFit, Matched, match_responses
from brickwork.moments.processes import shared_over_processes
from brickwork.moments.ridge import Ridge, solve_ridge

__all__ = [
    "LayerFit",
    "Matched",
    "Moments",
    "Ridge",
    "Source",
    "collect_moments",
    "fold_batch_norm",
    "match_responses",
    "reestimate_batch_norm",
    "shared_over_processes",
    "solve_ridge",
]
