"""Transplanting: category modules and task modules of different networks, joined by small adapters (paper 3)."""

from brickwork.blueprint.splitting import Split, split
from brickwork.transplant.adapter import Adapter, balance
from brickwork.transplant.chain import Chain, Dummy
from brickwork.transplant.closed_form import solve_features, solve_pseudo_gradients
from brickwork.transplant.folders import load_net, save_net
from brickwork.transplant.growth import add_learned_task, connect
from brickwork.transplant.joint import tune
from brickwork.transplant.learning import WAYS, Learned, learn_adapter
from brickwork.transplant.net import TransplantNet
from brickwork.transplant.options import How

__all__ = [
    "WAYS",
    "Adapter",
    "Chain",
    "Dummy",
    "How",
    "Learned",
    "Split",
    "TransplantNet",
    "add_learned_task",
    "balance",
    "connect",
    "learn_adapter",
    "load_net",
    "save_net",
    "solve_features",
    "solve_pseudo_gradients",
    "split",
    "tune",
]
