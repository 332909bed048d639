"""Reading a safetensors file while somebody else replaces it."""

import os
import threading

import numpy as np
from safetensors.numpy import save_file

from brickwork.tensor_file import read_header


def test_a_file_that_is_replaced_while_it_is_read_is_the_old_or_the_new_one(tmp_path):
    path, stop = tmp_path / "checkpoint.safetensors", threading.Event()
    sizes = (10, 1000)

    def write(size):
        save_file({"x": np.zeros(size, np.float32)}, tmp_path / "next")
        os.replace(tmp_path / "next", path)

    def replace_again_and_again():
        while not stop.is_set():
            for size in sizes:
                write(size)

    write(sizes[0])
    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    try:
        seen = {read_header(path).entries["x"].numbers for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert seen <= set(sizes)
