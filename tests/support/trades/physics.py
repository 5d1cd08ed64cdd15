"""Physics and geometry."""

from typing import Any

import numpy as np


def coulomb(x: Any) -> Any:
    """The softened potential at every charge in the plane, and how far from the middle it is."""
    r = x[..., :, :, None] - x[..., :, None, :]
    potential = (1 / np.sqrt((r**2).sum(axis=-3) + 0.5)).sum(axis=-1)
    return np.stack([potential, (x**2).sum(axis=-2)], axis=-2)


def burgers(x: Any) -> Any:
    """Three explicit steps of a viscous fluid on a ring."""
    u = x
    for _ in range(3):
        left, right = np.roll(u, 1, axis=-1), np.roll(u, -1, axis=-1)
        u = u - 0.1 * u * (right - left) / 2 + 0.1 * (left - 2 * u + right)
    return u


def mean_field_ising(x: Any) -> Any:
    m = np.tanh(x)
    for _ in range(4):
        m = np.tanh(0.8 * m.mean(axis=-1, keepdims=True) + x)
    return m


def kuramoto_pairs(x: Any) -> Any:
    """A step of coupled oscillators, as the sum is written on the board."""
    return x + 0.1 * np.mean(np.sin(x[..., None, :] - x[..., :, None]), axis=-1)


def kuramoto(x: Any) -> Any:
    """The same by the order parameter, four steps."""
    theta = x
    for _ in range(4):
        c, s = np.cos(theta), np.sin(theta)
        theta = theta + 0.1 * (s.mean(-1, keepdims=True) * c - c.mean(-1, keepdims=True) * s)
    return theta


def spring_chain(x: Any) -> Any:
    """Positions and velocities of masses between stiffening springs, two steps of leapfrog."""
    q, v = x[..., 0, :], x[..., 1, :]
    for _ in range(2):
        stretch = np.diff(q, axis=-1, prepend=0.0, append=0.0)
        force = stretch + 0.3 * stretch**3
        v = v + 0.05 * (force[..., 1:] - force[..., :-1])
        q = q + 0.05 * v
    return np.stack([q, v], axis=-2)


def lennard_jones_chain(x: Any) -> Any:
    """The energy of every particle of a chain; x is how far it is from its place."""
    gap = 1.5 + x[..., 1:] - x[..., :-1]
    bond = 4 * (gap**-12 - gap**-6)
    zero = np.zeros_like(x[..., :1])
    return 0.5 * (np.concatenate([bond, zero], -1) + np.concatenate([zero, bond], -1))


def bilateral(x: Any) -> Any:
    """Smoothing along a ring that stops at edges."""
    total, weight = x, 1.0
    for step in (-2, -1, 1, 2):
        other = np.roll(x, step, axis=-1)
        w = np.exp(-(step**2) / 4 - (x - other) ** 2 / 0.2)
        total, weight = total + w * other, weight + w
    return total / weight


def polar(x: Any) -> Any:
    return np.stack([np.hypot(x[..., 0, :], x[..., 1, :]), np.arctan2(x[..., 1, :], x[..., 0, :])], axis=-2)


def distance_to_centroid(x: Any) -> Any:
    distance = np.linalg.norm(x - x.mean(axis=-1, keepdims=True), axis=-2)
    return np.stack([distance] * x.shape[-2], axis=-2)


def whitened(x: Any) -> Any:
    """Points of the plane in the metric of their covariance."""
    z = x - x.mean(axis=-1, keepdims=True)
    (a, b), (_, c) = np.moveaxis(z @ np.swapaxes(z, -1, -2) / x.shape[-1] + 0.5 * np.eye(2), (-2, -1), (0, 1))
    u, v = z[..., 0, :], z[..., 1, :]
    det = (a * c - b**2)[..., None]
    return np.stack([(c[..., None] * u - b[..., None] * v) / det, (a[..., None] * v - b[..., None] * u) / det], -2)


def nearest_neighbour(x: Any) -> Any:
    gaps = np.abs(x[..., :, None] - x[..., None, :]) + 10 * np.eye(x.shape[-1])
    return gaps.min(axis=-1)


def shoelace(x: Any) -> Any:
    """The area of a polygon is taken off its corners."""
    u, v = x[..., 0, :], x[..., 1, :]
    area = 0.5 * (u * np.roll(v, -1, axis=-1) - v * np.roll(u, -1, axis=-1)).mean(axis=-1)
    return x - area[..., None, None]


def spherical(x: Any) -> Any:
    """Rows: radius, polar angle, azimuth; to Cartesian coordinates."""
    r, theta, phi = (x[..., i, :] for i in range(3))
    return np.stack([r * np.sin(theta) * np.cos(phi), r * np.sin(theta) * np.sin(phi), r * np.cos(theta)], axis=-2)


def graph_smoothing(x: Any) -> Any:
    """Two steps down the Laplacian of a random graph, each followed by a soft clip."""
    n = x.shape[-1]
    adjacency = np.random.default_rng(18).random((n, n)) < 3 / n
    adjacency = adjacency | adjacency.T
    laplacian = np.diag(adjacency.sum(0)) - adjacency
    for _ in range(2):
        x = np.tanh(x - 0.1 * x @ laplacian)
    return x
