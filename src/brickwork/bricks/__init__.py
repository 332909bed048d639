"""Bricks: the sub-network of some classes, cut out of a classifier, and networks built from such parts (paper 2)."""

from brickwork.bricks.adaptation import adapt
from brickwork.bricks.assembly import assemble
from brickwork.bricks.brick import Brick
from brickwork.bricks.compression import compress
from brickwork.bricks.disassembly import disassemble
from brickwork.bricks.distillation import distil
from brickwork.bricks.incremental import increment
from brickwork.bricks.route_sets import Routes
from brickwork.bricks.routes import routes
from brickwork.bricks.transferring import transfer
from brickwork.bricks.treatment import treat

__all__ = [
    "Brick",
    "Routes",
    "adapt",
    "assemble",
    "compress",
    "disassemble",
    "distil",
    "increment",
    "routes",
    "transfer",
    "treat",
]
