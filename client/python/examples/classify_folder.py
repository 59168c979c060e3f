#!/usr/bin/env python3
"""Classifies the pictures of a folder, and shows how far it is.

usage: classify_folder.py FOLDER MODEL        prints FILE, label and probability; the daemon is that of $SHOAL_DIR
"""
import sys
from pathlib import Path

import shoal

folder, model = Path(sys.argv[1]), sys.argv[2]
files = sorted(file for file in folder.iterdir() if file.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
failed = 0
with shoal.Pool() as pool:
    classifier = shoal.ImageClassifier(pool, model)
    for done, file in enumerate(files, 1):
        try:
            [(label, probability)] = classifier.classify(file, top_k=1)
            print(f"{file}\t{label}\t{probability:.3f}")
        except shoal.Error as error:  # a damaged picture, for example: the others go on
            failed += 1
            print(f"\n{file}: {error}", file=sys.stderr)
        bar = "#" * (30 * done // len(files))
        print(f"\r[{bar:30}] {100 * done // len(files)} %  {done} of {len(files)}", end="", file=sys.stderr, flush=True)
print(file=sys.stderr)
sys.exit(1 if failed else 0)
