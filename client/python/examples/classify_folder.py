#!/usr/bin/env python3
"""Classifies all pictures of a folder with a model of the local daemon ($SHOAL_DIR), and shows how far it is. A picture that cannot be
classified, for example a damaged one, is named, and the others go on; the exit code then is 1."""
import argparse
import sys
from pathlib import Path

import shoal

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


def show_progress(text):
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def classify(model, folder):
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        return f"{folder}: has no pictures"
    have_failed = False
    with shoal.Pool() as pool:
        classifier = shoal.ImageClassifier(pool, model, top_k=1)
        for warning in classifier.warnings:
            print(warning, file=sys.stderr)
        for done, file in enumerate(files, 1):
            try:
                [(label, probability)] = classifier.classify(file)
                line, stream = f"{file.name}: {label} ({100 * probability:.1f} %)", sys.stdout
            except shoal.Error as error:
                have_failed = True
                line, stream = f"{file.name}: {error}", sys.stderr
            show_progress("\r\033[K")  # so that the line can be written
            print(line, file=stream, flush=True)
            bar = "#" * (30 * done // len(files))
            end = "\n" if done == len(files) else ""
            show_progress(f"\r[{bar:30}] {100 * done // len(files)} %  {done} of {len(files)}{end}")
    return int(have_failed)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", metavar="MODEL")
parser.add_argument("folder", metavar="FOLDER", type=Path)
words = parser.parse_args()
try:
    sys.exit(classify(words.model, words.folder))
except (shoal.Error, OSError) as error:
    sys.exit(str(error))
