"""CovLasso for all classes at once against scikit-learn's best routes, target after target.

All contenders get the same Gram matrix, ready in memory, and solve the same problems: min ½θᵀQθ − qᵀθ + α‖θ‖₁ for
each class, its own column left out. scikit-learn has no public way to share one Gram matrix: its private Gram
coordinate descent gets the matrix with the target's row and column at zero (such a column is skipped), so that
nothing is copied, and warm starts along a path; lars_path_gram follows the path from the top. celer and skglm, if
installed, work on a square root of the Gram matrix. One thread each. Compiling is not in the measured time
(`first_s` says how long ours took); neither is making the Gram matrix, which is the same for all.
"""

import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numba
import numpy as np

from brickwork.dependencies.gram import LogitGram, logit_gram
from brickwork.dependencies.path import covlasso_path
from brickwork.dependencies.problem import Problem
from brickwork.errors import BadFile, RequestError
from brickwork_lab import imagenet
from brickwork_lab.benchmarks.measure import Contender, Row, Work, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS = "brickwork"
WHO = {OURS: "ours", "scikit-learn Gram CD": "sklearn_cd", "scikit-learn lars_path_gram": "sklearn_lars"}
EXTRA = ("celer", "skglm")
TOL = 1e-4  # duality gap that a peer stops at, against yᵀy: the objective is then seen to be right to 1e-6
MEDIAN = 7  # nonzeros per class at the one λ

#: (gram without the target, q, y², falling alphas) -> coefficients at the last alpha
Solve = Callable[[np.ndarray, np.ndarray, float, list[float]], np.ndarray]


@benchmark(
    "covlasso",
    help="All classes' sparse dependencies from one Gram matrix, against scikit-learn.",
    common=("repeat", "separate"),
    repeat=1,
    at_least={"path": 2},
)
def covlasso(
    contest: Contest,
    *,
    data: str = "both",
    rows: int = 50_000,
    classes: int = 1000,
    path: int = 20,
    smallest: float = 0.1,
) -> Outcome:
    """data: real (logits of ImageNet in $BRICKWORK_DATA), synthetic (rows × classes) or both; path: λ's, to smallest·λ_max.

    Without the real logits "both" is synthetic alone, and the outcome says so.
    """
    if data not in ("real", "synthetic", "both"):
        raise RequestError(f"data is {data!r}; it must be real, synthetic or both.")
    if not 0 < smallest < 1:
        raise RequestError(f"smallest must lie between 0 and 1, not {smallest}")
    remarks: dict[str, list[Row]] = {}
    logits: dict[str, Iterable[np.ndarray] | np.ndarray] = {}
    if data != "synthetic":
        try:
            logits["real"] = imagenet.logits_of(imagenet.NETWORKS[0]).logits
        except BadFile as error:
            if data == "real":
                raise
            remarks["remarks"] = [{"remark": f"made logits only: {error}"}]
    if data != "real":
        logits["synthetic"] = synthetic(rows, classes)
    who = WHO | {name: name for name in EXTRA if importlib.util.find_spec(name)}
    contenders: dict[str, Contender] = {name: f"{__name__}:{function}" for name, function in who.items()}
    measured: list[Row] = []
    gains: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, some in logits.items():
            gram = logit_gram(some).gram
            np.save(Path(folder) / "gram.npy", gram)
            tasks = {"one λ": [_share(gram)], f"path of {path}": np.geomspace(1, smallest, path + 1)[1:].tolist()}
            for task, shares in tasks.items():
                part = contest.measure(contenders, folder=folder, shares=shares)
                _judge(part, gram, shares[-1], folder, who)
                for name, gain in ratios(part, OURS, ("cpu_s", "wall_s", "peak_mb")).items():
                    gains[f"{name}, {task}, {kind}"] = gain
                measured += [{"task": task, "data": kind, **row} for row in part]
    return Outcome(measured, gains, remarks)


def synthetic(rows: int, classes: int) -> Iterator[np.ndarray]:
    """Chunks of made-up logits: classes share latent directions, neighbours more of them, plus noise of their own."""
    rng = np.random.default_rng(0)
    latent = max(4, classes // 4)
    basis = rng.normal(size=(latent, classes)) / np.sqrt(latent)
    basis += 1.5 * np.repeat(rng.normal(size=(latent, -(-classes // 5))), 5, axis=1)[:, :classes] / np.sqrt(latent)
    for start in range(0, rows, 5000):
        count = min(5000, rows - start)
        made = rng.normal(size=(count, latent)) @ basis + 0.5 * rng.normal(size=(count, classes)) + 0.1
        yield made.astype(np.float32)


def _problem(gram: np.ndarray) -> Problem:
    return Problem.plain(LogitGram(gram, gram, gram.diagonal().copy(), 0, True), np.arange(len(gram)))


def _share(gram: np.ndarray) -> float:
    """The share of λ_max at which a class has MEDIAN nonzeros (or close to it)."""
    problem, low, high = _problem(gram), 0.01, 1.0
    for _ in range(10):
        middle = float(np.sqrt(low * high))
        count = np.median((problem.solve(middle * problem.lam_max, tol=1e-4).coef != 0).sum(1))
        if count == MEDIAN:
            return middle
        low, high = (low, middle) if count < MEDIAN else (middle, high)
    return middle


def _judge(rows: list[Row], gram: np.ndarray, share: float, folder: str, who: dict[str, str]) -> None:
    """Beside each row: nonzeros, and how far its objective at the last λ is above the best, the worst class."""
    problem = _problem(gram)
    lam = share * problem.lam_max
    coefs = [np.load(Path(folder) / f"{who[row['who']]}.npy") for row in rows]
    values = np.stack([problem.objective(coef, lam) for coef in coefs])
    for row, coef, value in zip(rows, coefs, values, strict=True):
        row["nonzeros"] = float(np.median((np.abs(coef) > 1e-10).sum(1)))
        row["above_best"] = float(((value - values.min(0)) / gram.diagonal()).max())


def ours(folder: str, shares: list[float]) -> Work:
    gram = np.load(Path(folder) / "gram.npy")
    began = time.process_time()
    numba.set_num_threads(1)
    covlasso_path(_problem(np.eye(3) + 0.5), np.array([0.5]))  # compiled, or read from numba's cache
    first = time.process_time() - began
    problem = _problem(gram)

    def work() -> dict[str, float]:
        if len(shares) == 1:
            coef = problem.solve(shares[0] * problem.lam_max, tol=1e-6).coef
        else:
            coef = covlasso_path(problem, np.array(shares)).coefs[-1].toarray()
        np.save(Path(folder) / "ours.npy", coef)
        return {"first_s": first}

    return work


def _target_by_target(
    folder: str, name: str, solve: Callable[[int], np.ndarray], count: int, first: float = 0.0
) -> Work:
    """Peers solve one target after another, and keep the coefficients at the last λ."""

    def work() -> dict[str, float]:
        coef = np.zeros((count, count))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lars_path says so when two features enter at once
            for i in range(count):
                coef[i] = solve(i)
        np.save(Path(folder) / f"{name}.npy", coef)
        return {"first_s": first} if first else {}

    return work


def _on_gram(folder: str, shares: list[float], name: str, fit: Solve) -> Work:
    """For solvers that take a Gram matrix: it has the target's row and column at zero meanwhile."""
    gram = np.load(Path(folder) / "gram.npy")

    def solve(i: int) -> np.ndarray:
        column = gram[:, i].copy()
        gram[:, i] = gram[i, :] = 0
        q = column.copy()
        q[i] = 0
        coef = fit(gram, q, column[i], [share * float(np.abs(q).max()) for share in shares])
        gram[:, i] = gram[i, :] = column
        return coef

    return _target_by_target(folder, name, solve, len(gram))


def sklearn_cd(folder: str, shares: list[float]) -> Work:
    from sklearn.linear_model._cd_fast import enet_coordinate_descent_gram

    rng = np.random.RandomState(0)

    def solve(gram: np.ndarray, q: np.ndarray, square: float, alphas: list[float]) -> np.ndarray:
        w, y = np.zeros(len(q)), np.array([np.sqrt(square)])
        for alpha in alphas:
            w = enet_coordinate_descent_gram(w, alpha, 0.0, gram, q, y, 100_000, TOL, rng, False, False, True)[0]
        return np.asarray(w)

    return _on_gram(folder, shares, "sklearn_cd", solve)


def sklearn_lars(folder: str, shares: list[float]) -> Work:
    from sklearn.linear_model import lars_path_gram

    def solve(gram: np.ndarray, q: np.ndarray, square: float, alphas: list[float]) -> np.ndarray:
        knots, _, path = lars_path_gram(q, gram, n_samples=1, alpha_min=alphas[-1], method="lasso", max_iter=5000)
        for alpha in alphas[:-1]:  # the path is linear between its knots
            k = max(1, int(np.searchsorted(-knots, -alpha)))
            share = (alpha - knots[k]) / (knots[k - 1] - knots[k])
            path[:, k] + share * (path[:, k - 1] - path[:, k])
        return path[:, -1]

    return _on_gram(folder, shares, "sklearn_lars", solve)


def celer(folder: str, shares: list[float]) -> Work:
    from celer import celer_path

    def fit(x: np.ndarray, y: np.ndarray, alphas: list[float]) -> np.ndarray:
        return celer_path(x, y, "lasso", alphas=np.array(alphas), tol=TOL, max_iter=1000)[1][:, -1]

    return _on_root(folder, shares, "celer", fit)


def skglm(folder: str, shares: list[float]) -> Work:
    from skglm import Lasso

    def fit(x: np.ndarray, y: np.ndarray, alphas: list[float]) -> np.ndarray:
        model = Lasso(fit_intercept=False, tol=TOL, warm_start=True)
        for alpha in alphas:
            model.alpha = alpha
            model.fit(x, y)
        return np.asarray(model.coef_)

    return _on_root(folder, shares, "skglm", fit)


def _on_root(
    folder: str, shares: list[float], name: str, fit: Callable[[np.ndarray, np.ndarray, list[float]], np.ndarray]
) -> Work:
    """For solvers that take a design, not a Gram matrix: X with XᵀX / n = Gram, the target's column at zero."""
    gram = np.load(Path(folder) / "gram.npy")
    values, vectors = np.linalg.eigh(gram)
    root = (np.sqrt(np.maximum(values, 0) * len(gram))[:, None] * vectors.T).copy(order="F")
    began = time.process_time()
    fit(root[:, :50].copy(order="F"), root[:, 50 % len(gram)].copy(), [0.5 * float(np.abs(gram).max())])
    first = time.process_time() - began

    def solve(i: int) -> np.ndarray:
        y = root[:, i].copy()
        root[:, i] = 0
        top = float(np.abs(np.delete(gram[i], i)).max())
        coef = fit(root, y, [share * top for share in shares])
        root[:, i] = y
        return coef

    return _target_by_target(folder, name, solve, len(gram), first)
