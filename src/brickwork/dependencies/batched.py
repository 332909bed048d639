"""The same solver on a GPU: all targets at once in torch, float64, one batch of working sets.

Working set, sweeps of coordinate descent, Newton step and certificate are those of descent.py. Every operation
runs over a block of targets; the working sets of a block are padded to the longest. A target whose active features
are dependent may not reach its tolerance here; it is finished by descent.py.
"""

import numpy as np
import torch
from torch import Tensor

from brickwork.dependencies.problem import Floats, Problem
from brickwork.devices import pick

_OUTER, _ROUNDS, _SWEEPS = 40, 6, 8  # working sets; rounds on one; sweeps before a Newton step is tried
_CELLS = 2**26  # float64 numbers of a block's largest table


def solve_batched(
    problem: Problem, half: Floats, tol: float, coef: Floats, gradient: Floats, device: str
) -> tuple[Floats, Floats]:
    """Solve every target at λ/2 = half from the start in coef; coef and gradient are overwritten: (kkt, gap)."""
    where = pick(device)
    gram = torch.as_tensor(problem.gram, device=where)
    kkt, gap = np.zeros(len(half)), np.zeros(len(half))
    most = int(np.diff(problem.first).max(initial=0))
    size = max(1, min(len(half), _CELLS // max(1, len(gram) * max(1, most))))
    for start in range(0, len(half), size):
        ids = np.arange(start, min(start + size, len(half)))
        block = _Block(problem, ids, half[ids], gram, where)
        theta = torch.as_tensor(coef[ids], device=where)
        theta, q, wrong, left = block.solve(theta, tol)
        coef[ids], gradient[ids] = theta.cpu().numpy(), q.cpu().numpy()
        kkt[ids], gap[ids] = wrong.cpu().numpy(), left.cpu().numpy()
    return kkt, gap


class _Block:
    """Some targets of a problem, on the device."""

    def __init__(self, problem: Problem, ids: np.ndarray, half: Floats, gram: Tensor, where: torch.device):
        self.gram = gram
        self.cross = torch.as_tensor(problem.cross[ids], device=where)
        self.squares = torch.as_tensor(problem.squares[ids], device=where)
        self.half = torch.as_tensor(half, device=where)
        own = torch.as_tensor(problem.own[ids], device=where)
        has = (own >= 0).nonzero()[:, 0]
        self.open = torch.ones_like(self.cross, dtype=torch.bool)
        self.open[has, own[has]] = False
        counts = np.diff(problem.first)[ids]
        most = int(counts.max(initial=0))
        picks, weights = np.zeros((len(ids), most), np.int64), np.zeros((len(ids), most))
        for k, t in enumerate(ids):
            span = slice(problem.first[t], problem.first[t + 1])
            picks[k, : counts[k]], weights[k, : counts[k]] = problem.index[span], problem.weight[span]
        rows = np.asarray(problem.rows[picks.reshape(-1)], np.float64) if most else np.zeros((0, len(gram)))
        self.rows = torch.as_tensor(rows, device=where).reshape(len(ids), most, len(gram))
        self.weights = torch.as_tensor(weights, device=where)

    def gradient(self, theta: Tensor) -> Tensor:
        q = self.cross - theta @ self.gram
        if self.rows.shape[1]:
            seen = torch.einsum("trn,tn->tr", self.rows, theta)
            q = q - torch.einsum("trn,tr->tn", self.rows, self.weights * seen)
        return q * self.open

    def solve(self, theta: Tensor, tol: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        theta = theta * self.open
        inside = theta != 0
        half = self.half[:, None]
        stuck = torch.zeros_like(self.half, dtype=torch.bool)
        for outer in range(_OUTER):
            q = self.gradient(theta)
            kkt = self._violation(q, theta, half).amax(1)
            enters = (q.abs() > half * (1 + tol)) & ~inside & self.open
            if outer:  # nobody enters and it is not solved: sweeps and Newton do not get there
                stuck |= ~enters.any(1)
            todo = ((kkt > tol * self.half) & ~stuck).nonzero()[:, 0]
            if not len(todo):
                break
            fresh = enters[todo]
            room = inside[todo].sum(1).clamp(min=8)
            order = (q[todo].abs() * fresh).argsort(dim=1, descending=True).argsort(dim=1)
            inside[todo] |= fresh & (order < room[:, None])
            theta[todo] = self._inner(todo, theta[todo], inside[todo], 0.1 * tol)
        q = self.gradient(theta)
        kkt = self._violation(q, theta, half).amax(1) / self.half
        return theta, q, kkt, self._gap(theta, q)

    def _inner(self, ids: Tensor, theta: Tensor, inside: Tensor, tol: float) -> Tensor:
        """The problems of the working sets, padded to the longest: sweeps, Newton, until all are solved."""
        width = int(inside.sum(1).max())
        chosen = inside.int().argsort(dim=1, descending=True, stable=True)[:, :width]
        real = inside.gather(1, chosen)
        sub = self.gram[chosen[:, :, None], chosen[:, None, :]]
        if self.rows.shape[1]:
            seen = self.rows[ids].gather(2, chosen[:, None, :].expand(-1, self.rows.shape[1], -1))
            sub = sub + torch.einsum("tra,tr,trb->tab", seen, self.weights[ids], seen)
        right, half = self.cross[ids].gather(1, chosen), self.half[ids]
        part = theta.gather(1, chosen) * real
        diagonal = sub.diagonal(dim1=1, dim2=2)
        real = real & (diagonal > 0)
        safe = torch.where(real, diagonal, 1.0)
        for _ in range(_ROUNDS):
            q = right - torch.einsum("tab,tb->ta", sub, part)
            for _ in range(_SWEEPS):
                for a in range(width):
                    old = part[:, a]
                    value = q[:, a] + safe[:, a] * old
                    new = torch.sign(value) * (value.abs() - half).clamp(min=0) / safe[:, a] * real[:, a]
                    q = q - (new - old)[:, None] * sub[:, a]
                    part[:, a] = new
            part = self._newton(sub, right, part, half)
            q = right - torch.einsum("tab,tb->ta", sub, part)
            wrong = self._violation(q, part, half[:, None]) * real
            if bool((wrong.amax(1) <= tol * half).all()):
                break
        return torch.zeros_like(theta).scatter(1, chosen, part * real)

    @staticmethod
    def _newton(sub: Tensor, right: Tensor, part: Tensor, half: Tensor) -> Tensor:
        """Solve for the coefficients that are not zero with their signs held; kept where no sign changes."""
        active = part != 0
        both = active[:, :, None] & active[:, None, :]
        system = torch.where(both, sub, 0.0)
        system = system + torch.diag_embed((~active).to(sub))
        factor, failed = torch.linalg.cholesky_ex(system)
        pivots = factor.diagonal(dim1=1, dim2=2).square()
        sound = (failed == 0) & (pivots > 1e-11 * system.diagonal(dim1=1, dim2=2)).all(1)
        eye = torch.eye(sub.shape[1], dtype=sub.dtype, device=sub.device)
        factor = torch.where(sound[:, None, None], factor, eye)
        aim = torch.where(active, right - half[:, None] * part.sign(), 0.0)
        solved = torch.cholesky_solve(aim[:, :, None], factor)[:, :, 0]
        good = sound & ((solved * part > 0) | ~active).all(1)
        return torch.where(good[:, None] & active, solved, part)

    @staticmethod
    def _violation(q: Tensor, theta: Tensor, half: Tensor) -> Tensor:
        return torch.where(theta != 0, (q - half * theta.sign()).abs(), (q.abs() - half).clamp(min=0))

    def _gap(self, theta: Tensor, q: Tensor) -> Tensor:
        """Duality gap of the halved problem, as in descent.py."""
        along = (self.cross * theta).sum(1)
        residual = (self.squares - along - (q * theta).sum(1)).clamp(min=0)
        toward, largest = self.squares - along, q.abs().amax(1)
        bound = torch.where(largest > self.half, self.half / largest.clamp(min=1e-300), 1.0)
        ratio = toward / residual.clamp(min=1e-300)
        scale = torch.where(residual > 0, torch.minimum(torch.maximum(ratio, -bound), bound), bound)
        primal = 0.5 * residual + self.half * theta.abs().sum(1)
        return (primal - scale * toward + 0.5 * scale * scale * residual).clamp(min=0)
