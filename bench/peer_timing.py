"""What the programs against_*.py share: how they end where something is missing, and how a call on a GPU is timed."""
import pathlib
import statistics
import sys


def fail(message):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {message}", file=sys.stderr)
    sys.exit(2)


def milliseconds(torch, call, repeats):
    """The median of five rows of calls, in milliseconds a call."""
    for _ in range(2):
        call()
    rows = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        rows.append(begin.elapsed_time(end) / repeats)
    return statistics.median(rows)
