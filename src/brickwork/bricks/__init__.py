"""Bricks: the sub-network of some classes, cut out of a classifier, and networks built from such parts (paper 2)."""

from brickwork.bricks.assembly import assemble
from brickwork.bricks.brick import Brick
from brickwork.bricks.disassembly import disassemble
from brickwork.bricks.route_sets import Routes
from brickwork.bricks.routes import routes

__all__ = ["Brick", "Routes", "assemble", "disassemble", "routes"]
