#!/usr/bin/env python3
"""Draws the training pictures of the shapes model: one shape on a background, with random variations.

usage: draw.py OUTPUT_DIR [--seed N] [--count N]     writes OUTPUT_DIR/<class>-<n>.png, larger than the model's input

Needs only numpy and Pillow. A picture is drawn several times larger and then shrunk, so that its edges are smooth.
"""
import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

CLASSES = ["circle", "ring", "crescent", "triangle", "square", "pentagon", "hexagon", "diamond", "star", "cross", "heart", "arrow"]
OVERSAMPLE = 4


def regular(corners, phase=-90.0):
    return [(math.cos(a), math.sin(a)) for a in (math.radians(phase + 360 * i / corners) for i in range(corners))]


def star_points(inner=0.42):
    radii = (1.0, inner)
    return [(radii[i % 2] * math.cos(a), radii[i % 2] * math.sin(a)) for i in range(10) for a in [math.radians(-90 + 36 * i)]]


def cross_points(arm=0.3):
    a, b = arm, 0.95
    return [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]


def heart_points():
    t = np.linspace(0, 2 * np.pi, 80, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    return [(float(a) / 17, float(b + 2) / 17) for a, b in zip(x, y)]


def arrow_points(shaft=0.2):
    return [(0, -1), (0.62, -0.25), (shaft, -0.25), (shaft, 0.95), (-shaft, 0.95), (-shaft, -0.25), (-0.62, -0.25)]


def outlines(name, rng):
    """The outline of the shape in the unit circle, and the outline of its hole (or None)."""
    circle = regular(96)
    if name == "circle":
        return circle, None
    if name == "ring":
        return circle, [(x * s, y * s) for s in [rng.uniform(0.5, 0.72)] for x, y in circle]
    if name == "crescent":
        shift, s = rng.uniform(0.38, 0.55), rng.uniform(0.8, 0.95)
        return circle, [(x * s + shift, y * s) for x, y in circle]
    if name == "diamond":
        w = rng.uniform(0.45, 0.62)
        return [(0, -1), (w, 0), (0, 1), (-w, 0)], None
    simple = {"triangle": lambda: regular(3), "square": lambda: regular(4, -45), "pentagon": lambda: regular(5),
              "hexagon": lambda: regular(6), "star": lambda: star_points(rng.uniform(0.36, 0.48)),
              "cross": lambda: cross_points(rng.uniform(0.22, 0.34)), "heart": heart_points,
              "arrow": lambda: arrow_points(rng.uniform(0.14, 0.24))}
    return simple[name](), None


def random_color(rng):
    return rng.uniform(0, 255, 3)


def colors(rng):
    """A foreground and a background color that differ clearly."""
    while True:
        front, back = random_color(rng), random_color(rng)
        if abs(np.dot(front - back, (0.299, 0.587, 0.114))) > 45:
            return front, back


def background(rng, size, color, front):
    """A plain color, a gradient, stripes or spots around `color`, never near the foreground's brightness."""
    y, x = np.mgrid[0:size, 0:size] / size
    angle = rng.uniform(0, 2 * math.pi)
    along = np.cos(angle) * x + np.sin(angle) * y
    kind = rng.integers(4)
    if kind == 0:
        wave = np.zeros_like(x)
    elif kind == 1:
        wave = along - along.mean()
    elif kind == 2:
        wave = 0.5 * np.sin(along * rng.uniform(10, 40))
    else:
        small = rng.uniform(0, 255, (6, 6)).astype(np.uint8)
        wave = np.asarray(Image.fromarray(small).resize((size, size), Image.BICUBIC), float) / 255 - 0.5
    contrast = abs(np.dot(front - color, (0.299, 0.587, 0.114)))
    return color + (wave * min(60, contrast * 0.6))[..., None]


def place(points, radius, angle, squeeze, center):
    c, s = math.cos(angle), math.sin(angle)
    placed = []
    for x, y in points:
        x, y = x * squeeze * radius, y * radius
        placed.append((center[0] + c * x - s * y, center[1] + s * x + c * y))
    return placed


def draw(name, rng, size=64):
    """Draws one picture of that class: uint8 (size, size, 3)."""
    big = size * OVERSAMPLE
    front, back = colors(rng)
    radius = big * rng.uniform(0.22, 0.43)
    room = big / 2 - radius
    center = [big / 2 + rng.uniform(-0.9, 0.9) * room for _ in range(2)]
    # Squares and diamonds differ in their proportions, so any shape may be rotated by any angle.
    squeeze = rng.uniform(0.92, 1.08)
    shape, hole = outlines(name, rng)
    angle = rng.uniform(0, 2 * math.pi)
    mask = Image.new("L", (big, big), 0)
    pen = ImageDraw.Draw(mask)
    pen.polygon(place(shape, radius, angle, squeeze, center), fill=255)
    if hole:
        pen.polygon(place(hole, radius, angle, squeeze, center), fill=0)
    mask = mask.resize((size, size), Image.LANCZOS)
    alpha = np.asarray(mask, float)[..., None] / 255
    picture = background(rng, size, back, front) * (1 - alpha) + front * alpha
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.9) * size / 64))
    noisy = np.asarray(image, float) + rng.normal(0, rng.uniform(0, 16), (size, size, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def draw_set(count, seed, size=64):
    """Draws `count` pictures (count, size, size, 3) of evenly mixed classes. Returns them and their class numbers."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASSES)
    rng.shuffle(labels)
    return np.stack([draw(CLASSES[label], rng, size) for label in labels]), labels.astype(np.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--count", type=int, default=1, help="pictures of each class")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    for name in CLASSES:
        for number in range(args.count):
            Image.fromarray(draw(name, rng, size=int(rng.integers(96, 160)))).save(args.output / f"{name}-{number + 1}.png", optimize=True)


if __name__ == "__main__":
    main()
