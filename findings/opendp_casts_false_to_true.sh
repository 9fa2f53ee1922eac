#!/usr/bin/env bash
# OpenDP casts the texts "false" and "0" to True, and "7.0", " 6" and "yes" as numbers to 0.
#
# Expected: then_cast_default reads texts as other readers of CSV files do: "false" is False, " 6" is 6
#   and "7.0" is 7, and what cannot be read becomes the default, which is False or 0.
# Seen: each text that is not empty is True as a bool. As an int, a blank at either side or a ".0" makes
#   a number 0; as a float, a blank does. Nothing is said, and sums and counts are of these values.
#   (opendp 0.16.0, Python 3.11)
# Why: a bool is whether a text has any letter, and numbers follow the rules of Rust's parser.
# Way out: read and strip the texts before OpenDP has them, for instance with pandas or Polars.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opendp==0.16.0
"$folder/venv/bin/python" - <<'END'
import opendp.prelude as dp

dp.enable_features("contrib")
texts = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()


def cast(words, kind):
    return (texts >> dp.t.then_cast_default(TOA=kind))(words)


flags = cast(["true", "false", "0", "no", ""], bool)
whole = cast(["5", "+8", " 6", "6 ", "7.0", "yes"], int)
numbers = cast(["5", "7.0", "1e3", " 6", "NA"], float)
print("bool:", flags)  # [True, True, True, True, False]
print("int:", whole)  # [5, 8, 0, 0, 0, 0]
print("float:", numbers)  # [5.0, 7.0, 1000.0, 0.0, 0.0]
assert flags == [True, True, True, True, False]
assert whole == [5, 8, 0, 0, 0, 0]
assert numbers == [5.0, 7.0, 1000.0, 0.0, 0.0]
END
