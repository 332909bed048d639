"""A torch.export program as one readable Python file with its weights beside it: what runs needs torch alone.

The file lists every tensor with its shape, and the forward pass one operation a line, under the name of the layer that it
belongs to: the layers of a cut network stand there as narrow as they are.
"""

from __future__ import annotations

import importlib.util
import keyword
import operator
import pprint
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from brickwork.errors import Unsupported
from brickwork.store.weights import write_safetensors
from brickwork.words import sides

NAME, WEIGHTS = "network.py", "weights.safetensors"
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "truediv": "/"}
#: functions of torch.nn.functional that have the operator's own order of arguments
FUNCTIONAL = {
    *("linear", "scaled_dot_product_attention", "adaptive_avg_pool2d", "avg_pool2d"),
    *("gelu", "silu", "mish", "hardtanh", "hardswish", "hardsigmoid"),
}
METHODS = {"view", "expand", "contiguous", "to", "type_as", "repeat", "new_zeros", "new_ones", "size"}
LEFT_OUT = {"_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range", "_assert_scalar"}

HEAD = '''"""A network, written by Brickwork as plain torch; it needs nothing else.

    from network import CLASSES, load{prepare_import}

    model = load()                       # {weights}, beside this file
    logits = model({call})    # {takes}
    names = [CLASSES[i] for i in logits.argmax(1)]
"""

import json
import struct
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

#: the classes, in the order of the logits
CLASSES = {classes}
#: how raw images become input: scaled (resize), the middle of size cut out, 0..1, minus mean, divided by std
PREPROCESSING = {preprocessing}
'''

PREPARE = '''

def prepare(images):
    """Raw images of the network's size, uint8 (N, H, W, C), as it takes them."""
    mean, std = (torch.tensor(PREPROCESSING[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
    return ((images.permute(0, 3, 1, 2).float() / 255 - mean) / std){cast}.contiguous()
'''

TAIL = '''

KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "BOOL": "bool"}
KINDS |= {"I16": "int16", "I8": "int8", "U8": "uint8"}


def load(path=Path(__file__).with_name("weights.safetensors")):
    """The network with its weights, in evaluation mode."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    table, start = json.loads(content[8 : 8 + length]), 8 + length
    model = Network()
    for name in TENSORS:
        about = table[name]
        first, last = about["data_offsets"]
        values = torch.frombuffer(bytearray(content[start + first : start + last]), dtype=getattr(torch, KINDS[about["dtype"]]))
        getattr(model, name).data = values.reshape(about["shape"])
    return model.eval()
'''


def write_plain(program: Any, folder: Path, facts: dict[str, Any], any_batch: bool) -> Callable[[Tensor], Tensor]:
    """Write the two files; gives back what they compute, as a function that has read them."""
    source = _Source(program)
    text = source.text(facts, any_batch)
    (folder / NAME).write_text(text, encoding="utf-8")
    write_safetensors(source.tensors, folder / WEIGHTS, {"format": "pt"})
    specification = importlib.util.spec_from_file_location("brickwork_exported_network", folder / NAME)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    code = compile(text, str(folder / NAME), "exec")
    module.__file__ = str(folder / NAME)
    exec(code, module.__dict__)  # not by its loader, which would leave a __pycache__ in the folder
    model = module.load()

    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(images)
        return logits

    return run


class _Source:
    """The text of a program, and the tensors it reads."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.names: dict[str, str] = {}  # node -> how it is written
        self.tensors: dict[str, Tensor] = {}
        self.trained: set[str] = set()
        self.images = "images"
        used = {node.name for node in program.graph.nodes if node.users}
        values = {**program.state_dict, **program.constants}
        for spec in program.graph_signature.input_specs:
            node = spec.arg.name
            if spec.target is None:
                self.images = self.names[node] = "images"
            elif node in used:
                name = self._fresh(re.sub(r"\W", "_", spec.target.removeprefix("model.")))
                self.tensors[name] = values[spec.target].detach().clone().contiguous()
                self.names[node] = f"self.{name}"
                if isinstance(values[spec.target], torch.nn.Parameter):
                    self.trained.add(name)

    def _fresh(self, name: str) -> str:
        name = f"_{name}" if name[:1].isdigit() or keyword.iskeyword(name) or hasattr(torch.nn.Module, name) else name
        taken, number, start = set(self.tensors), 2, name
        while name in taken:
            name, number = f"{start}_{number}", number + 1
        return name

    def text(self, facts: dict[str, Any], any_batch: bool) -> str:
        raw = facts["with_preprocessing"]
        prepared = facts["preprocessing"] or {}
        prepares = not raw and bool(prepared.get("mean"))
        floats = [value for value in self.tensors.values() if value.is_floating_point()]
        cast = "" if not floats or floats[0].dtype == torch.float32 else f".to({floats[0].dtype})"
        node = next(n for n in self.program.graph.nodes if self.names.get(n.name) == "images")
        shape = sides(node.meta["val"].shape[1:])
        count = "N" if any_batch else "1"
        head = HEAD.format(
            prepare_import=", prepare" if prepares else "",
            weights=WEIGHTS,
            call="prepare(images)" if prepares else "images",
            takes=f"{count}×{shape}"
            + (" uint8: height, width, channels" if raw else " after prepare" if prepares else ""),
            classes=pprint.pformat(facts["classes"], width=118, compact=True),
            preprocessing=pprint.pformat(facts["preprocessing"], width=100, sort_dicts=False),
        )
        rows = [
            f"    {name!r}: ({tuple(value.shape)}, {value.dtype}, {name in self.trained}),"
            for name, value in self.tensors.items()
        ]
        table = (
            "\n#: every tensor: its shape, its type, whether it is trained\nTENSORS = {\n" + "\n".join(rows) + "\n}\n"
        )
        return "".join([head, table, PREPARE.format(cast=cast) if prepares else "", CLASS, self._forward(), TAIL])

    def _forward(self) -> str:
        lines: list[str] = []
        heading = ""
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                [result] = [n for n in node.args[0] if isinstance(n, Node)]
                lines.append(f"return {self._written(result)}")
                continue
            if node.op != "call_function" or node.target.__name__.split(".")[0] in LEFT_OUT:
                if node.op == "get_attr":
                    raise Unsupported(
                        f"the network holds a part ({node.target}) that plain torch code cannot; use `to` pt2"
                    )
                continue
            if node.target is operator.getitem and not node.users:
                continue
            where = self._layer(node)
            if where and where != heading:
                lines.append(f"# {where}")
                heading = where
            self.names[node.name] = self._local(node.name)
            lines.append(f"{self.names[node.name]} = {self._call(node)}")
        return "".join(f"        {line}\n" for line in lines)

    def _local(self, name: str) -> str:
        return f"{name}_" if keyword.iskeyword(name) or name in ("images", "self", "torch", "F") else name

    @staticmethod
    def _layer(node: Node) -> str:
        """The layer an operation belongs to, with its class."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if not stack:
            return ""
        path, kind = stack[-1]
        path = re.sub(r"^L\['self'\]\.?", "", str(path)).removeprefix("model").removeprefix(".")
        return f"{path} ({str(kind).rpartition('.')[2]})" if path else ""

    def _call(self, node: Node) -> str:
        target: Any = node.target
        args = [self._written(value) for value in node.args]
        named = [f"{name}={self._written(value)}" for name, value in node.kwargs.items()]
        if target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        if getattr(target, "__module__", "") in ("_operator", "operator") and target.__name__ in INFIX:
            return f"({args[0]} {INFIX[target.__name__]} {args[1]})"
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            raise Unsupported(f"the network uses {target}, which plain torch code cannot name; use `to` pt2 or onnx")
        name, overload = target._schema.name.split("::")[1], target._overloadname
        if name == "sym_size":
            return f"{args[0]}.shape[{args[1]}]"
        if name in INFIX and overload in ("Tensor", "Scalar") and len(args) == 2 and not named:
            return f"{args[0]} {INFIX[name]} {args[1]}"
        every = ", ".join([*args, *named])
        if name in METHODS:
            return f"{args[0]}.{name}({', '.join([*args[1:], *named])})"
        if name in FUNCTIONAL:
            return f"F.{name}({every})"
        if hasattr(torch, name) and not name.startswith("_"):
            return f"torch.{name}({every})"
        if name.endswith("_") and hasattr(Tensor, name):
            return f"{args[0]}.{name}({', '.join([*args[1:], *named])})"
        return f"torch.ops.aten.{name}.{overload or 'default'}({every})"

    def _written(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[value.name]
        if isinstance(value, list | tuple):
            inner = ", ".join(self._written(one) for one in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, torch.device):
            return f"{self.images}.device"
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return f'float("{value}")'
        return repr(value)


CLASS = '''

class Network(nn.Module):
    """The network; one line for each operation, under the layer it came from."""

    def __init__(self):
        super().__init__()
        for name, (shape, kind, trained) in TENSORS.items():
            values = torch.zeros(shape, dtype=kind)
            if trained:
                self.register_parameter(name, nn.Parameter(values))
            else:
                self.register_buffer(name, values)

    def forward(self, images):
'''
