"""Reads the commands' results for the report."""

import re
from collections.abc import Iterator
from typing import Any

from gpu_kit.check.environment import REGISTRY
from gpu_kit.check.record import Part

DEVICE_ROWS = ("type", "vendor", "version", "driver_version", "compute_units", "max_clock_mhz", "global_mem_bytes")
DEVICE_ROWS += ("max_alloc_bytes", "local_mem_bytes", "cache_bytes", "max_work_group_size", "host_unified_memory")


def described(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read :mod:`gpu_kit.check.describe`: a table per device, and whether the vendor's device works with this one."""
    if not results:
        return
    found = {name: value for result in results for name, value in result.items()}
    # A run that was killed early lacks these.
    was_asked = "drivers" in found
    part.data = found = {"platforms": [], "drivers": [], "vendor": {}, **found}
    wrong = []
    if isinstance(found["platforms"], str):
        wrong, found["platforms"] = [found["platforms"]], []
    devices = [(entry["name"], device) for entry in found["platforms"] for device in entry["devices"]]
    part.summary = "; ".join(device["name"] for _, device in devices) or ("no OpenCL device" if was_asked else "")
    if was_asked and not devices:
        part.fail("OpenCL", [*wrong, *_without_devices(found["drivers"])])
        # After a fix, --resume runs this part again.
        part.finished = False
    if found["drivers"]:
        rows = [[driver["file"], driver["library"], driver["says"]] for driver in found["drivers"]]
        part.tables.append({"title": "Registered drivers", "columns": ["file", "library", "its answer"], "rows": rows})
    for platform, device in devices:
        rows = [[name, device[name]] for name in DEVICE_ROWS]
        rows.append(["fp64, fp16", f"{_has(device, 'cl_khr_fp64')}, {_has(device, 'cl_khr_fp16')}"])
        part.tables.append({"title": f"{device['name']} ({platform})", "columns": ["property", "value"], "rows": rows})
    vendor, beside = found["vendor"], found.get("beside")
    rows = [["Python", found["python"]], ["system", found["system"]], ["processor", found["processor"]]]
    rows += [["processors", found["cpus"]], ["torch", vendor.get("torch") or vendor.get("error")]]
    rows.append(["the vendor's device in PyTorch", vendor.get("name") or vendor.get("accelerator")])
    if beside:
        rows.append(["it works together with this backend", beside.get("works", False)])
        rows.append(["tensors move from it to this backend and back", beside.get("moved", False)])
        if not beside.get("works"):
            part.fail("the vendor's device together with this backend", [str(beside.get("error") or beside)])
    part.tables.append({"title": "The machine", "columns": ["what", "value"], "rows": rows})


def _without_devices(drivers: list[dict[str, str]]) -> Iterator[str]:
    """Yield, if there is no device, each driver's answer, and how to use one that works alone."""
    if not drivers:
        yield f"No driver is registered in {REGISTRY}, and NVIDIA's is not in its usual folders."
    for driver in drivers:
        yield f"{driver['file']}: {driver['says']}"
        if driver.get("devices"):
            yield f"It works alone: OCL_ICD_VENDORS={driver['library']} OCL_ICD_FILENAMES={driver['library']}"
    yield "`nvidia-smi` and the variables are in report.json."


def _has(device: dict[str, Any], extension: str) -> str:
    return "yes" if extension in device["extensions"] else "no"


def self_tested(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read :mod:`gpu_kit.check.self_test`: each device's outcome."""
    if not results:
        return
    part.data = results[0]
    if part.data["library_error"]:
        part.fail("the native library", [part.data["library_error"]])
    names = []
    for device, test in zip(part.data["devices"], part.data.get("self_test", []), strict=False):
        names.append(f"{device['name']}: {'ok' if test['ok'] else 'wrong'}")
        if not test["ok"]:
            part.fail(device["name"], test["error"].splitlines()[:8])
    part.summary = "; ".join(names) or "no device"


def trained(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read :mod:`gpu_kit.check.training`: the losses and the times, with the CPU's."""
    if not results:
        return
    part.data = found = results[0]
    if found["wrong"]:
        part.fail("training", [found["wrong"]])
    rows = []
    for name in ("opencl", "cpu"):
        result, steps = found[name], len(found[name]["losses"])
        losses = [f"{result['losses'][index]:.4f}" for index in (0, 4, steps // 4, steps // 2, steps - 1)]
        each = result["other_steps"] / (steps - 1)
        rows.append([name, *losses, f"{result['first_step']:.2f} s", f"{1e3 * each:.2f} ms"])
    columns = ["device", "first loss", "step 5", "a quarter", "half", "last", "first step", "other steps, each"]
    part.tables = [{"title": part.title, "columns": columns, "rows": rows}]
    part.summary = f"loss {rows[0][1]} to {rows[0][5]}, {rows[0][7]} per step (CPU {rows[1][7]})"


def compared(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read ``python -m benchmarks gpu``: a table of all rows, with the limit's share and the ratio to the vendor's."""
    part.data = results
    rows, ratios = [], []
    for row in results:
        if row.get("error"):
            part.fail(row["name"], [row["error"]])
        peer, ratio = row.get("peer"), row.get("peer_ratio")
        ratios += [ratio] if ratio else []
        share = row.get("limit_share")
        rows.append(
            [
                row["name"],
                _time(row.get("seconds")),
                row.get("rate") or "",
                f"{share:.0%} {row.get('bound', '')}" if share is not None else "",
                _time(peer),
                f"{ratio:.2f}" if ratio else row.get("peer_error") or row.get("unable", ""),
            ]
        )
    columns = ["work", "time", "rate", "of the limit", "vendor's time", "vendor's time / ours"]
    # Without a vendor's device, its columns are only kept if rows that were not possible need them.
    while rows and not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    if rows:
        part.tables = [{"title": part.title, "columns": columns, "rows": rows}]
    against = f", {min(ratios):.2f} to {max(ratios):.2f} times the vendor's speed" if ratios else ""
    part.summary = f"{len(rows)} rows{against}"


def benchmarked(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read ``python -m benchmarks --quick``: each row with its ratio to the CPU, and the wrong ones."""
    part.data = results
    rows = []
    for row in results:
        if row.get("error"):
            part.fail(f"{row['group']}: {row['name']}", [row["error"]])
            continue
        if row.get("unable"):
            rows.append([row["group"], row["name"], "", row["unable"], "", ""])
            continue
        share = f"{row['limit_share']:.0%} {row['bound']}" if row["limit_share"] is not None else ""
        fallbacks = " ".join(row["fallbacks"])
        rows.append([row["group"], row["name"], _time(min(row["device"])), f"{row['ratio']:.2f}", share, fallbacks])
    columns = ["group", "work", "time", "times the CPU's speed", "of the limit", "on the CPU"]
    if rows:
        part.tables = [{"title": part.title, "columns": columns, "rows": rows}]
    part.summary = f"{len(rows)} rows"


def tuned(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read ``python -m torch_opencl.tune``: the parameters found, and their speedups."""
    found = [re.fullmatch(r"  (\w+) = (.+?)(?: \(default (.+)\))?", line) for line in printed]
    rows = [list(match.groups()) for match in found if match]
    gains = [line.strip() for line in printed if " times the speed" in line]
    part.data = {"values": rows, "gains": gains}
    if rows:
        part.tables = [{"title": part.title, "columns": ["parameter", "value", "default, if different"], "rows": rows}]
        part.tables.append({"title": "Speedup by tuning", "columns": ["work"], "rows": [[gain] for gain in gains[1:]]})
    part.summary = gains[0].rpartition("): ")[2] if gains else ""


def first_used(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read ``python -m benchmarks first-use``: its lines."""
    found = [re.match(r"(\S.{0,48}\S) +([\d.]+ (?:s|ms|us|ns))(?: +(.*))?$", line) for line in printed]
    part.data = rows = [[group or "" for group in match.groups()] for match in found if match]
    if rows:
        part.tables = [{"title": part.title, "columns": ["what", "time", "target"], "rows": rows}]
    short = [row[0] for row in rows if "SHORT" in row[2]]
    part.summary = f"slower than the target: {'; '.join(short)}" if short else f"{len(rows)} times"
    # Exit status 1 means a missed target, which is not an error.
    if part.status == "failed" and short:
        part.status = "passed"


def fuzzed(part: Part, results: list[Any], printed: list[str]) -> None:
    """Read ``tests/fuzz``: its last line, and the finding it ended with."""
    part.summary = printed[-1][:200] if printed else ""
    if part.status == "failed":
        part.fail("finding", printed[-30:])


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
