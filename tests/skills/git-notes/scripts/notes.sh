#!/usr/bin/env bash
# notes.sh [FROM] - one line per commit since FROM, merges left out.
set -euo pipefail
from=${1:-}
echo "# Changes"
git log --no-merges --format='- %s' ${from:+"$from.."} | sort -u
