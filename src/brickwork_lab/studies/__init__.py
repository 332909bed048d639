"""The papers' tables as runnable recipes."""

from brickwork_lab.studies.registry import REGISTRY, Study, get, names, study

__all__ = ["REGISTRY", "Study", "get", "names", "study"]
