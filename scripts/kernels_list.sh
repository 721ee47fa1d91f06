#!/usr/bin/env bash
# Lists the entry points of the OpenCL kernels: one line per family, then the total. The preprocessor is needed
# for kernels that macros define, and for kernels of all compute classes.
set -euo pipefail
cd "$(dirname "$0")/../rust"

entry_points() {
  local class
  for class in F D I C Z; do
    cat kernels/include/prelude.cl "$1" | cpp -P -DCLASS_$class -DHAS_FP64 - 2>/dev/null || true
  done | tr '\n' ' ' | grep -oE '__kernel[^{;]*void +[A-Za-z_0-9]+ *\(' | grep -oE '[A-Za-z_0-9]+ *\($' |
    tr -d ' (' | sort -u
}

total=0
while read -r file; do
  mapfile -t names < <(entry_points "$file")
  [ ${#names[@]} -gt 0 ] || continue
  printf '%-18s %s\n' "$(basename "$file" .cl)" "${names[*]}"
  total=$((total + ${#names[@]}))
done < <(find ops kernels -name '*.cl' | sort)
echo "$total entry points"
