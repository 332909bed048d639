"""Neural dependencies: which classes' logits are combinations of a few others' (paper 5)."""

from brickwork.dependencies.covlasso import CovLasso
from brickwork.dependencies.gram import LogitGram, logit_gram
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.path import DependencyPath

__all__ = ["CovLasso", "DependencyMap", "DependencyPath", "LogitGram", "fit_map", "logit_gram"]
