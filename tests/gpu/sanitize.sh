#!/usr/bin/env bash
# The engine matrix on a card under compute-sanitizer, in a reduced size, on all cores:
#
#   tests/gpu/sanitize.sh build/test_gpu                         memcheck, then racecheck
#   tests/gpu/sanitize.sh build/test_gpu initcheck synccheck     other tools
#
# Without the toolkit: pip's nvidia-cuda-sanitizer-api-cu12, and COMPUTE_SANITIZER=…/cuda_sanitizer_api/bin/compute-sanitizer.
# Of gradients and tangents alone: FILTER='*Backward*:*TangentsOnDevice*'.
#
# FILTER narrows the tests, SHARDS says how many parts run at a time, LIMIT how many seconds each may take. Prints
# what was run and found, keeps the logs in $TMPDIR, and fails where a tool found something, a test failed, or a part
# did not come to its end.
set -euo pipefail

[ $# -gt 0 ] && [ -x "$1" ] || { echo "usage: $0 TEST_GPU [TOOL…]: build the target test_gpu first" >&2; exit 2; }
sanitizer="${COMPUTE_SANITIZER:-compute-sanitizer}"
command -v "$sanitizer" >/dev/null ||
  { echo "$0: no compute-sanitizer: it is part of the CUDA toolkit, /usr/local/cuda/bin, or comes by pip" >&2; exit 4; }
program="$1"
shift
[ $# -gt 0 ] || set -- memcheck racecheck
usual="*CudaStrategies*:*Multistarts*:*Tail*:*CudaNarrow*:CudaScan*:RandomLanes*:*Rows.*:*Backward*:*TangentsOnDevice*"
filter="${FILTER:-$usual-*UnderNvrtc*}"
shards="${SHARDS:-$(nproc)}"
logs="$(mktemp -d "${TMPDIR:-/tmp}/cellc-sanitize-XXXXXX")"

# What a kernel is does not depend on the tool: the first compiles, the others find.
export CELLC_TEST_DEVICE=gpu CELLC_TEST_SIZE="${CELLC_TEST_SIZE:-small}"
export CELLC_TEST_CACHE="${CELLC_TEST_CACHE:-$logs/cache}"

sum() { # sum PATTERN FILE…: the numbers before what PATTERN ends with
  local pattern="$1"
  shift
  sed -nE "s/.*$pattern.*/\1/p" "$@" | awk '{all += $1} END {print all + 0}'
}

status=0
printf '%-10s %6s %7s %9s %9s  %s\n' tool tests failed findings seconds "parts that ended"
for tool in "$@"; do
  begin=$SECONDS
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout "${LIMIT:-0}" "$sanitizer" --tool "$tool" \
      --log-file "$logs/$tool.$shard.findings" "$program" --gtest_filter="$filter" >"$logs/$tool.$shard.log" 2>&1 &
  done
  wait
  tests=$(cat "$logs/$tool".*.log | grep -c '^\[       OK ' || true)
  failed=$(cat "$logs/$tool".*.log | grep -cE '^\[  FAILED  \].* ms\)$' || true)
  ended=$(cat "$logs/$tool".*.findings | grep -c 'SUMMARY:' || true)
  findings=$(sum 'SUMMARY: ([0-9]+) (error|hazard)' "$logs/$tool".*.findings)
  printf '%-10s %6d %7d %9d %9d  %d of %d\n' "$tool" "$tests" "$failed" "$findings" $((SECONDS - begin)) "$ended" "$shards"
  if [ "$failed" -ne 0 ] || [ "$findings" -ne 0 ] || [ "$ended" -ne "$shards" ] || [ "$tests" -eq 0 ]; then status=1; fi
done
[ "$status" -eq 0 ] || echo "logs: $logs" >&2
exit "$status"
