"""Jobs here, in processes and on Ray: kept, resumed, and failing one by one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from brickwork import engine
from brickwork.engine import Job
from brickwork.engine.executors import _refuse_dead
from brickwork.errors import RequestError

MODULE = """
import os, signal, sys, time
from pathlib import Path
import numpy as np

def square(x, log=None):
    if log:
        with open(log, "a") as file:
            file.write(f"{x} {os.getpid()}\\n")
    return {"x": x, "square": x * x}

def careful(x):
    if x == 2:
        raise ValueError("two is too many")
    return x

def die(x):
    if x == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x

def arrays(n):
    return {"eye": np.eye(n), "parts": [np.arange(n), np.float32(0.5)], "plain": (1, "two", None)}

def threads():
    import torch
    return torch.get_num_threads()

def slow(x, seconds, log):
    time.sleep(seconds)
    return square(x, log)

def killed(log, times):
    with open(log, "a") as file:
        file.write("x")
    if os.path.getsize(log) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return times

def strange():
    return object()
"""


@pytest.fixture(autouse=True)
def jobs_module(tmp_path_factory, monkeypatch):
    """A module that other processes can import, as a user's would be."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "engine_jobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("engine_jobs", None)


def squares(count=4, **options):
    return [Job("engine_jobs:square", {"x": x, **options}) for x in range(count)]


@pytest.mark.parametrize("where", ["inline", "processes:2"])
def test_results_come_in_order_and_are_not_computed_twice(tmp_path, where):
    log, store = tmp_path / "log", tmp_path / "store"
    jobs = squares(log=str(log))
    first = engine.run(jobs, engine=where, store=store)
    assert [r.value for r in first] == [{"x": x, "square": x * x} for x in range(4)]
    assert not any(r.stored for r in first)
    second = engine.run([*jobs, Job("engine_jobs:square", {"x": 9, "log": str(log)})], engine=where, store=store)
    assert [r.stored for r in second] == [True] * 4 + [False]
    assert [r.value for r in second[:4]] == [r.value for r in first]
    lines = log.read_text().splitlines()
    assert len(lines) == 5
    processes = {line.split()[1] for line in lines}
    assert (str(os.getpid()) in processes) == (where == "inline")


@pytest.mark.parametrize("where", ["inline", "processes:1"])
def test_a_failed_job_is_reported_and_tried_again_next_time(tmp_path, where):
    jobs = [Job("engine_jobs:careful", {"x": x}) for x in range(4)]
    for _ in range(2):
        results = engine.run(jobs, engine=where, store=tmp_path)
        assert [r.value for r in results] == [0, 1, None, 3]
        assert [r.ok for r in results] == [True, True, False, True]
        assert "ValueError: two is too many" in results[2].error and "Traceback" in results[2].error
        assert not results[2].stored
    assert results[0].stored


def test_a_process_that_dies_takes_no_other_job_with_it(tmp_path):
    jobs = [Job("engine_jobs:die", {"x": x}) for x in range(4)]
    results = engine.run(jobs, engine="processes:2", store=tmp_path)
    assert [r.value for r in results] == [0, None, 2, 3]
    assert "the process of engine_jobs:die died" in results[1].error


def test_arrays_are_kept_beside_the_json(tmp_path):
    job = Job("engine_jobs:arrays", {"n": 3})
    for _ in range(2):
        (result,) = engine.run([job], store=tmp_path)
        assert np.array_equal(result.value["eye"], np.eye(3))
        assert np.array_equal(result.value["parts"][0], np.arange(3)) and result.value["parts"][1] == 0.5
        assert result.value["plain"] == [1, "two", None]
    assert result.stored
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".npz"]


def test_processes_run_one_thread_each():
    assert engine.run([Job("engine_jobs:threads")], engine="processes:1")[0].value == 1


def test_a_killed_run_is_continued(tmp_path, jobs_module):
    log, store = tmp_path / "log", tmp_path / "store"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from brickwork import engine\n"
        "jobs = [engine.Job('engine_jobs:slow', {'x': x, 'seconds': 60.0 * (x > 2), 'log': sys.argv[2]})"
        " for x in range(4)]\n"
        "engine.run(jobs, store=sys.argv[3])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(jobs_module), str(log), str(store)])
    deadline = time.monotonic() + 60
    while len(list(store.glob("*.json"))) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    jobs = [Job("engine_jobs:slow", {"x": x, "seconds": 0.0, "log": str(log)}) for x in range(4)]
    results = engine.run(jobs, store=store)
    assert [r.stored for r in results] == [True, True, True, False]
    assert len(log.read_text().splitlines()) == 4


def living(group: int) -> list[str]:
    """The processes of a group that still run; what only waits to be buried does not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            state, _, own_group = rest.split()[:3]
            found += [name] if state != "Z" and int(own_group) == group else []
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
def test_ctrl_c_leaves_finished_results_and_no_process(tmp_path, jobs_module):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from brickwork import engine\n"
        "if __name__ == '__main__':\n"
        "    jobs = [engine.Job('engine_jobs:slow', {'x': x, 'seconds': 60.0 * (x > 1), 'log': None})"
        " for x in range(4)]\n"
        "    engine.run(jobs, engine='processes:2', store=sys.argv[2])\n"
    )
    (tmp_path / "main.py").write_text(script)
    store = tmp_path / "store"
    command = [sys.executable, str(tmp_path / "main.py"), str(jobs_module), str(store)]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 60
    while len(list(store.glob("*.json"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group
    began = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 20 and b"KeyboardInterrupt" in err
    assert len(list(store.glob("*.json"))) == 2
    while living(process.pid):
        assert time.monotonic() - began < 20
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore")  # ray's own
def test_ray_on_this_machine(tmp_path):
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    jobs = [Job("engine_jobs:careful", {"x": x}) for x in range(4)]
    jobs += [Job("engine_jobs:arrays", {"n": 2}), Job("engine_jobs:die", {"x": 1})]
    results = engine.run(jobs, engine="ray", store=tmp_path)
    assert [r.value for r in results[:4]] == [0, 1, None, 3]
    assert "two is too many" in results[2].error
    assert np.array_equal(results[4].value["eye"], np.eye(2))
    assert "Ray lost engine_jobs:die 3 times" in results[5].error
    names = [row["name"] for row in json.loads((tmp_path / "missing.json").read_text())["missing"]]
    assert names == ["engine_jobs:careful", "engine_jobs:die"]
    assert not ray.is_initialized()
    assert all(r.stored for r in engine.run([jobs[0], jobs[4]], engine="inline", store=tmp_path))


def test_the_same_job_twice_is_run_once(tmp_path):
    log = tmp_path / "log"
    results = engine.run(squares(1, log=str(log)) * 3)
    assert len(results) == 3 and len(log.read_text().splitlines()) == 1


def test_a_damaged_result_is_computed_again(tmp_path):
    job = Job("engine_jobs:square", {"x": 5})
    engine.run([job], store=tmp_path)
    (tmp_path / f"{job.key}.json").write_text('{"value": ')
    (result,) = engine.run([job], store=tmp_path)
    assert result.value["square"] == 25 and not result.stored


def test_the_hash_depends_on_function_arguments_and_version():
    keys = {
        Job("a:f", {"x": 1}).key,
        Job("a:g", {"x": 1}).key,
        Job("a:f", {"x": 2}).key,
        Job("a:f", {"x": 1}, version="2").key,
    }
    assert len(keys) == 4
    assert Job("a:f", {"x": 1, "y": 2}).key == Job("a:f", {"y": 2, "x": 1}, name="another name").key


def test_a_result_that_is_no_json_is_an_error():
    (result,) = engine.run([Job("engine_jobs:strange")])
    assert "not JSON serializable" in result.error


@pytest.mark.filterwarnings("ignore")  # ray's own
def test_a_ray_that_is_not_there_is_refused_by_its_address():
    pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.raises(RequestError, match="no Ray at 'nowhere'"):
        engine.run([Job("engine_jobs:arrays", {"n": 2})], engine="ray:nowhere")


@pytest.mark.filterwarnings("ignore")  # ray's own
def test_a_worker_that_is_lost_does_its_job_again(tmp_path):
    """Killed once and twice by somebody else, the jobs are done; the third time is the last."""
    pytest.importorskip("ray", reason="needs the extra ray")
    jobs = [Job("engine_jobs:killed", {"log": str(tmp_path / f"log{k}"), "times": k}) for k in range(4)]
    results = engine.run(jobs, engine="ray", store=tmp_path / "journal")
    assert [r.ok for r in results] == [True, True, True, False] and [r.value for r in results[:3]] == [0, 1, 2]
    assert [len((tmp_path / f"log{k}").read_text()) for k in range(4)] == [1, 2, 3, 3]
    assert json.loads((tmp_path / "journal" / "missing.json").read_text())["missing"][0]["key"] == jobs[3].key
    (tmp_path / "log3").write_text("xxx")
    assert all(r.ok for r in engine.run(jobs, store=tmp_path / "journal"))
    assert not (tmp_path / "journal" / "missing.json").exists()


@pytest.mark.filterwarnings("ignore")  # ray's own
def test_a_node_of_a_cluster_that_dies_leaves_its_jobs_to_the_other(tmp_path, jobs_module, monkeypatch):
    """Two nodes on this machine, one of them killed in the middle: the same results as here."""
    pytest.importorskip("ray", reason="needs the extra ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(jobs_module))  # a cluster's workers import by themselves
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        log = tmp_path / "log"
        jobs = [Job("engine_jobs:slow", {"x": x, "seconds": 1.0, "log": str(log)}) for x in range(6)]
        killer = threading.Thread(target=lambda: (_wait_for(log), cluster.remove_node(second, allow_graceful=False)))
        killer.start()
        results = engine.run(jobs, engine=f"ray:{cluster.address}", progress=False)
        killer.join()
    finally:
        cluster.shutdown()
    assert [r.value for r in results] == [r.value for r in engine.run(squares(6), progress=False)]


def _wait_for(file):
    while not file.exists():
        time.sleep(0.05)


def test_a_share_of_a_gpu_is_for_ray():
    with pytest.raises(RequestError, match="gpu_share is for engine ray"):
        engine.run(squares(1), engine="processes:1", gpu_share=0.5)
    with pytest.raises(RequestError, match=r"gpu_share is 1\.5"):
        engine.run(squares(1), engine="ray", gpu_share=1.5)


@pytest.mark.parametrize("answers", [False, True])
def test_a_dead_ray_is_refused_soon(answers):
    """It took 290 seconds; a port at which somebody else listens is none, too."""
    pytest.importorskip("ray", reason="needs the extra ray")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if answers:
            listening.listen()
        began, port = time.monotonic(), listening.getsockname()[1]
        with pytest.raises(RequestError, match=f"no Ray at '127.0.0.1:{port}'"):
            engine.run([Job("engine_jobs:arrays", {"n": 2})], engine=f"ray:127.0.0.1:{port}")
        assert time.monotonic() - began < 30


@pytest.mark.filterwarnings("ignore")  # ray's own
def test_a_ray_that_runs_is_found_by_its_address():
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    with ray.init(include_dashboard=False, num_cpus=1, log_to_driver=False) as started:
        _refuse_dead(started.address_info["gcs_address"])


@pytest.mark.parametrize("text", ["process", "processes:0", "processes:two", "inline:3", "ray:", ""])
def test_unknown_engines_are_refused(text):
    with pytest.raises(RequestError, match=r"it must be inline, processes\[:N\] or ray\[:ADDRESS\]"):
        engine.EngineOptions(engine=text)


def test_jobs_that_cannot_travel_are_refused():
    with pytest.raises(RequestError, match="top of a module"):
        Job(lambda: 1)
    with pytest.raises(RequestError, match="must be JSON values"):
        Job("a:f", {"x": torch.zeros(1)})
    assert Job(np.linalg.norm, {"x": [1.0]}).path.endswith(":norm")
