#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: tokenizer_hf.py TEST_TOKENIZER [--strings N] [--seed S] [--tokenizers FOLDER]

Planalto's tokenizer against the Hugging Face package `tokenizers`, in both directions:
- random Unicode strings are encoded by the package with each tokenizer.json (the small ones of tests/golden, or those of
  FOLDER) and given to TEST_TOKENIZER, the test program, as vectors;
- a tokenizer that TEST_TOKENIZER trains must be loaded by the package and give the ids that TEST_TOKENIZER found.
Prints "ok - ..." or "not ok - ..." a check; where the package is missing, a notice, and succeeds.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tokenizers"

FRAGMENTS = [
    "the", "The", "THE", "don't", "DON'T", "Don\u2019t", "we'LL", "I'\u017f", "x'S", "'re'VE'm", "l'\u00e9t\u00e9", "stra\u00dfe",
    "caf\u00e9", "cafe\u0301", "\u0301\u0301a", "a\u0327\u0301", "\u1100\u1161\u11a8", "\uac01", "\u0958", "\u212b", "\u2126", "\ufb01",
    "\u4f60\u597d", "\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0441\u043b\u043e\u0432\u043e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
    "1", "12", "123", "1234", "12345", "\u0661\u0662\u0663\u0664", "\u00bd\u00b2", "\u2167", "\U0001d7d8\U0001d7d9",
    " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0", "\u2003", "\u2028", "\u2029", "\u3000", "\u0085", "\u180e", "\u200b",
    "\ufeff", "\0", "\x1b[0m", "\u00ad", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\u01c5", "\u02b0", "\u2160",
    "!", "...", "??!", "/*", "*/", "//", "http://a.b/c?d=e", "x+=1;", "{\"a\":[1,2]}", "$", "\u20ac", "`code`", "_", "__init__", "#", "\\n",
    "<", "<|", "|>", "<think>", "</think>", "<\uff5c", "<tool_call>",
]


def random_character(rng):
    kind = rng.random()
    if kind < 0.4:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.55:
        return chr(rng.randrange(0xA0, 0x600))
    if kind < 0.75:
        return chr(rng.choice([c for c in (rng.randrange(0x600, 0x10000),) if not 0xD800 <= c < 0xE000] or [0x41]))
    if kind < 0.95:
        return chr(rng.choice([rng.randrange(0x10000, 0x20000), rng.randrange(0x20000, 0x33480)]))
    return chr(rng.randrange(0x33480, 0x110000))


def random_string(rng, added):
    out = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.62:
            out.append(rng.choice(FRAGMENTS))
        elif kind < 0.70 and added:
            token = rng.choice(added)
            out.append(token if rng.random() < 0.7 else token[: rng.randrange(len(token))])
        else:
            out.append("".join(random_character(rng) for _ in range(rng.randrange(1, 8))))
        if rng.random() < 0.4:
            out.append(rng.choice(" \n"))
    return "".join(out)


def vector(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    line = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
    if special != ids:
        line["ids_with_special"] = special
    skipped = tokenizer.decode(special, skip_special_tokens=True)
    if skipped != line["decoded"]:
        line["decoded_skip_special"] = skipped
    return line


def run_test(program, name, **environment):
    done = subprocess.run([program, f"--gtest_filter={name}"], env={**os.environ, **environment}, capture_output=True, text=True)
    passed = done.returncode == 0 and "[  PASSED  ] 1 test." in done.stdout
    if not passed:
        print(done.stdout[-6000:], done.stderr[-2000:])
    return passed


def report(name, passed):
    print(("ok - " if passed else "not ok - ") + "ecosystem: " + name, flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizers", type=pathlib.Path, default=GOLDEN / "small")
    arguments = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("skipped - ecosystem: the Python package tokenizers is not installed")
        return 0

    good = True
    for path in sorted(arguments.tokenizers.glob("*.tokenizer.json")):
        name = path.name.removesuffix(".tokenizer.json")
        if name == "llama2":
            continue
        reference = tokenizers.Tokenizer.from_file(str(path))
        added = [token["content"] for token in json.loads(path.read_text(encoding="utf-8"))["added_tokens"]]
        rng = random.Random(f"{arguments.seed} {name}")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / path.name).symlink_to(path.resolve())
            with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
                for _ in range(arguments.strings):
                    file.write(json.dumps(vector(reference, random_string(rng, added)), ensure_ascii=False) + "\n")
            passed = run_test(arguments.program, "WholeTokenizers.*", PLANALTO_TOKENIZERS=folder)
        good &= report(f"{name}, {arguments.strings} random strings of seed {arguments.seed}", passed)

    with tempfile.TemporaryDirectory() as folder:
        passed = run_test(arguments.program, "Trainer.WritesForOtherReaders", PLANALTO_TRAINED=folder)
        if passed:
            trained = tokenizers.Tokenizer.from_file(f"{folder}/trained.tokenizer.json")
            for number, line in enumerate(open(f"{folder}/trained.jsonl", encoding="utf-8"), 1):
                ours = json.loads(line)
                theirs = vector(trained, ours["text"])
                if theirs["ids"] != ours["ids"] or theirs["decoded"] != ours["decoded"]:
                    print(f"line {number}: {ours} against {theirs}")
                    passed = False
        good &= report("a trained tokenizer is read and encodes the same", passed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
