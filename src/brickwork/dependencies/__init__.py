"""Neural dependencies: which classes' logits are combinations of a few others' (paper 5)."""

from brickwork.dependencies.covlasso import CovLasso
from brickwork.dependencies.cutting import CovariancePenalty, pairs_above
from brickwork.dependencies.gram import LogitGram, logit_gram
from brickwork.dependencies.heads import fit_head
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.new_classes import add_classes
from brickwork.dependencies.partial import CoefficientPenalty
from brickwork.dependencies.path import DependencyPath

__all__ = [
    "CoefficientPenalty",
    "CovLasso",
    "CovariancePenalty",
    "DependencyMap",
    "DependencyPath",
    "LogitGram",
    "add_classes",
    "fit_head",
    "fit_map",
    "logit_gram",
    "pairs_above",
]
