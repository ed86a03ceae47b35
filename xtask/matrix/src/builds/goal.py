"""Evaluates the recipes of a plan at hits of the goal site, and reads the same from the server's variables.

gdb runs this, attached to the server. The file that $GOAL names says what to evaluate, and gets the answer.
"""

import json
import os
import re

import gdb

WORD = (1 << 64) - 1

with open(os.environ["GOAL"]) as file:
    asked = json.load(file)


def memory(address, width=8):
    data = gdb.selected_inferior().read_memory(address & WORD, width)
    return int.from_bytes(data.tobytes(), "little")


def register(name):
    value = int(gdb.selected_frame().read_register(name))
    return value & (WORD if name.startswith("r") and not name.endswith("d") else 0xFFFFFFFF)


def variable(member, width=8):
    return memory(member["address"] + asked["bias"], width)


def operand(text):
    if found := re.fullmatch(r"\[(\w+)([+-]0x[0-9a-f]+)\]", text):
        return memory(register(found[1]) + int(found[2], 16))
    if found := re.fullmatch(r"-?\d+", text):
        return int(text)
    if found := re.fullmatch(r"server\.(\w+)", text):
        return variable(asked["members"][found[1]])
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
    threads = memory(counters["threads"] + asked["bias"], counters["threads_width"])
    words = range(min(threads, counters["most"]))
    value = sum(memory(member["address"] + asked["bias"] + counters["stride"] * word) for word in words)
    if threads > counters["most"] and counters["overflow"] is not None:
        value += memory(counters["overflow"] + asked["bias"])
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


def hit():
    values = {name: recipe(text) for name, text in asked["recipes"].items()}
    members = asked["members"]
    if "used_memory" in members:
        values["own_used_memory"] = used_memory(members["used_memory"])
    if "maxmemory" in members:
        values["own_maxmemory"] = variable(members["maxmemory"])
    values["own_overhead"] = not_counted()
    return values


gdb.execute("handle all nostop noprint pass", to_string=True)
gdb.Breakpoint(f"*{asked['site']:#x}")
hits = []
for _ in range(asked["hits"]):
    gdb.execute("continue", to_string=True)
    if gdb.selected_frame().pc() != asked["site"]:
        raise gdb.GdbError(f"stopped at {gdb.selected_frame().pc():#x}")
    hits.append(hit())
gdb.execute("delete")
gdb.execute("detach", to_string=True)
with open(os.environ["GOAL"], "w") as file:
    json.dump(hits, file)
