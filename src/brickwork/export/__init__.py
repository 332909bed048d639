"""Networks for use without Brickwork: ONNX, a torch.export program, or plain torch; each compared with the module."""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
