"""Evaluates the recipes of a plan at hits of the goal site, and compares them with the server's variables.

gdb runs this, attached to the server. $PLAN names the plan, $SITE is where the goal site is in the process.
"""

import json
import os
import re

import gdb

WORD = (1 << 64) - 1
SITE = int(os.environ["SITE"])
HITS = int(os.environ["HITS"])

with open(os.environ["PLAN"]) as file:
    plan = json.load(file)
inner = next(function for function in plan["functions"] if function["kind"] == "eviction_call")["inner"]
members = {member["name"]: member for member in plan["members"]}
bias = SITE - inner["address"]


def memory(address, width=8):
    data = gdb.selected_inferior().read_memory(address & WORD, width)
    return int.from_bytes(data.tobytes(), "little")


def register(name):
    value = int(gdb.selected_frame().read_register(name))
    return value & (WORD if name.startswith("r") and not name.endswith("d") else 0xFFFFFFFF)


def variable(member, width=8):
    return memory(member["address"] + bias, width)


def operand(text):
    if found := re.fullmatch(r"\[(\w+)([+-]0x[0-9a-f]+)\]", text):
        return memory(register(found[1]) + int(found[2], 16))
    if found := re.fullmatch(r"-?\d+", text):
        return int(text)
    if found := re.fullmatch(r"server\.(\w+)", text):
        return variable(members[found[1]])
    found = re.fullmatch(r"(\w+)([+-]\d+)?", text)
    return register(found[1]) + int(found[2] or 0)


def recipe(text):
    first, *rest = re.split(r" ([+-]) ", text)
    value = -operand(first[1:]) if first.startswith("-") else operand(first)
    for sign, text in zip(rest[::2], rest[1::2]):
        value += operand(text) if sign == "+" else -operand(text)
    return value & WORD


def used_memory(member):
    counters = member["counters"]
    if counters is None:
        return variable(member)
    threads = memory(counters["threads"] + bias, counters["threads_width"])
    words = range(min(threads, counters["most"]))
    value = sum(memory(member["address"] + bias + counters["stride"] * word) for word in words)
    if threads > counters["most"] and counters["overflow"] is not None:
        value += memory(counters["overflow"] + bias)
    return value & WORD


def not_counted():
    """Asks the server itself for the overhead, where it has the function's name."""
    gdb.execute("set scheduler-locking on")
    try:
        return int(gdb.parse_and_eval("((unsigned long (*)(void)) freeMemoryGetNotCountedMemory)()"))
    except gdb.error:
        return None
    finally:
        gdb.execute("set scheduler-locking off")


def own():
    return {
        "mem_reported": used_memory(members["used_memory"]) if "used_memory" in members else None,
        "maxmemory": variable(members["maxmemory"]) if "maxmemory" in members else None,
        "overhead": not_counted(),
    }


def wrong(found, own):
    """Returns what does not agree at a hit. What is not known counts as agreeing."""
    expected = dict(own)
    for name, whole, part in [("mem_used", "mem_reported", "overhead"), ("mem_tofree", "mem_used", "maxmemory")]:
        if whole in found and part in found:
            expected[name] = (found[whole] - found[part]) & WORD
    wrong = [
        f"{name} {value} instead of {expected[name]}"
        for name, value in found.items()
        if expected.get(name) not in (None, value)
    ]
    if "mem_used" in found and "maxmemory" in found and found["mem_used"] <= found["maxmemory"]:
        wrong.append(f"a call that does not evict: {found['mem_used']} of {found['maxmemory']}")
    return wrong


# A comparison that finds nothing wrong must be one that would.
right = {"mem_reported": 110, "overhead": 4, "mem_used": 106, "maxmemory": 100, "mem_tofree": 6}
assert wrong(right, {"mem_reported": 110, "overhead": None}) == []
assert wrong(right, {"mem_reported": 111}) == ["mem_reported 110 instead of 111"]
assert len(wrong({**right, "maxmemory": 106}, {})) == 2

gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.Breakpoint(f"*{SITE:#x}")
count = with_overhead = 0
faults = []
for _ in range(HITS):
    gdb.execute("continue", to_string=True)
    if gdb.selected_frame().pc() != SITE:
        raise gdb.GdbError(f"stopped at {gdb.selected_frame().pc():#x}")
    found = {quantity["name"]: recipe(quantity["recipe"]) for quantity in inner["quantities"]}
    faults += wrong(found, own())
    count += 1
    with_overhead += found.get("overhead", 0) > 0
gdb.execute("delete")
gdb.execute("detach", to_string=True)
print("goal variables:", f"{len(faults)} wrong, such as {faults[0]}" if faults else f"{count} right, {with_overhead} with overhead")
