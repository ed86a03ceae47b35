"""Evaluates what a plan reads at hits of its sites, and compares it with what the server has, and with what its
functions take and return.

gdb runs this, attached to the server, or to an emulator that has one. $PLAN names the plan.
"""

import json
import os
import re
import struct

import gdb

WORD = (1 << 64) - 1
HITS = int(os.environ["HITS"])

with open(os.environ["PLAN"]) as file:
    plan = json.load(file)
functions = {function["kind"]: function for function in plan["functions"]}
eviction, cycle = functions.get("eviction_call", {}), functions.get("expire_cycle", {})
members = {member["name"]: member for member in plan["members"]}
gdb.execute("handle all nostop noprint pass", to_string=True)
architecture = gdb.selected_frame().architecture()
with open(gdb.current_progspace().filename, "rb") as file:
    planned_entry = struct.unpack_from("<Q", file.read(32), 24)[0]
# How far from the plan's addresses the process has them.
BIAS = int(re.search("Entry point: (.*)", gdb.execute("info files", to_string=True))[1], 16) - planned_entry
ARGUMENTS, RESULT = (["w0", "w1"], "w0") if architecture.name().startswith("aarch64") else (["edi", "esi"], "eax")


def memory(address, width=8):
    data = gdb.selected_inferior().read_memory(address & WORD, width)
    return int.from_bytes(data.tobytes(), "little")


def register(name):
    """Returns a register by its name of either processor. gdb has no names for the halves of aarch64's."""
    value = int(gdb.selected_frame().read_register(re.sub(r"^w", "x", name)))
    is_whole = name == "sp" or name[0] in "rx" and not name.endswith("d")
    return value & (WORD if is_whole else 0xFFFFFFFF)


def variable(name, width=8):
    return memory(members[name]["address"] + BIAS, width)


def stale():
    return struct.unpack("<d", struct.pack("<Q", variable("stat_expired_stale_perc")))[0]


def operand(text):
    if found := re.fullmatch(r"\[(\w+)([+-]0x[0-9a-f]+)?\]", text):
        return memory(register(found[1]) + int(found[2] or "0", 16))
    if found := re.fullmatch(r"-?\d+", text):
        return int(text)
    if found := re.fullmatch(r"server\.(\w+)", text):
        return variable(found[1])
    found = re.fullmatch(r"(\w+)([+-]\d+)?", text)
    return register(found[1]) + int(found[2] or 0)


def recipe(text):
    if text is None:
        return None
    first, *rest = re.split(r" ([+-]) ", text)
    value = -operand(first[1:]) if first.startswith("-") else operand(first)
    for sign, text in zip(rest[::2], rest[1::2]):
        value += operand(text) if sign == "+" else -operand(text)
    return value & WORD


def used_memory(member):
    counters = member["counters"]
    if counters is None:
        return variable("used_memory")
    threads = memory(counters["threads"] + BIAS, counters["threads_width"])
    words = range(min(threads, counters["most"]))
    value = sum(memory(member["address"] + BIAS + counters["stride"] * word) for word in words)
    if threads > counters["most"] and counters["overflow"] is not None:
        value += memory(counters["overflow"] + BIAS)
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
        "maxmemory": variable("maxmemory") if "maxmemory" in members else None,
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
        if value is not None and expected.get(name) not in (None, value)
    ]
    if "mem_used" in found and "maxmemory" in found and found["mem_used"] <= found["maxmemory"]:
        wrong.append(f"a call that does not evict: {found['mem_used']} of {found['maxmemory']}")
    return wrong


# A comparison that finds nothing wrong must be one that would.
right = {"mem_reported": 110, "overhead": 4, "mem_used": 106, "maxmemory": 100, "mem_tofree": 6}
assert wrong(right, {"mem_reported": 110, "overhead": None}) == []
assert wrong(right, {"mem_reported": 111}) == ["mem_reported 110 instead of 111"]
assert len(wrong({**right, "maxmemory": 106}, {})) == 2


class Call:
    """A call that has passed its function's inner site, and where it returns to."""

    def __init__(self, function, expired):
        self.function, self.expired = function, expired
        caller = gdb.selected_frame().older()
        self.returns = caller.pc(), int(caller.read_register("sp"))
        self.breakpoint = breakpoint(self.returns[0])
        self.ends = []
        self.before = [variable("stat_expiredkeys"), stale()] if function is cycle else None

    def has_returned(self):
        frame = gdb.selected_frame()
        return self.returns == (frame.pc(), int(frame.read_register("sp")))

    def compare(self):
        """Compares what was read where the call ended with what it has returned, or counted."""
        self.breakpoint.delete()
        if len(self.ends) != 1:
            faults.append(f"a call of {self.function['name']} ended {len(self.ends)} times")
        elif self.function is eviction:
            result = self.ends[0]["result"]
            faults.extend(wrong({"result": result and result & 0xFFFFFFFF}, {"result": register(RESULT)}))
            counts["results"] += result is not None
        else:
            sampled, keys = (self.ends[0][name] for name in ("sampled", "expired"))
            keys = None if keys is None else keys - self.expired
            counts["keys expired"] += keys or 0
            faults.extend(wrong({"expired": keys}, {"expired": variable("stat_expiredkeys") - self.before[0]}))
            # The server's estimate of what is stale says how many were sampled.
            if sampled is not None and keys is not None:
                counts["keys sampled"] += sampled
                estimate = 0.95 * self.before[1] + 0.05 * (keys / sampled if sampled else 0)
                if abs(estimate - stale()) > 1e-9:
                    faults.append(f"{keys} of {sampled} keys, where the estimate was {self.before[1]} and is {stale()}")


def breakpoint(address):
    new = gdb.Breakpoint(f"*{address:#x}", internal=True)
    new.silent = True
    return new


def ends(exit):
    """Returns whether the call at this exit ends there. If not all do, executes its branch."""
    if exit["way"] is None:
        return True
    at = gdb.selected_frame().pc()
    gdb.execute("stepi", to_string=True)
    return exit["way"]["taken"] == (gdb.selected_frame().pc() != at + architecture.disassemble(at)[0]["length"])


faults = []
counts = {"goals": 0, "goals with overhead": 0, "results": 0, "cycles": 0, "keys sampled": 0, "keys expired": 0}
sites, calls = {}, {}
for function in (eviction, cycle):
    inner = function.get("inner") or []
    function["inner"] = inner if isinstance(inner, list) else [inner]
    for site in [*function["inner"], *function["exits"]] if inner else []:
        sites.setdefault(site["address"] + BIAS, []).append((function, site))
for address in sites:
    breakpoint(address)
ENTRY = cycle["entry"]["address"] + BIAS if cycle.get("inner") else None
if ENTRY not in (None, *sites):
    breakpoint(ENTRY)


def begin(function, site):
    found = {quantity["name"]: recipe(quantity["recipe"]) for quantity in site["quantities"]}
    if function is eviction:
        faults.extend(wrong(found, own()))
        counts["goals"] += 1
        counts["goals with overhead"] += found.get("overhead", 0) > 0
    else:
        # A function for both jobs of Valkey's cycle takes the job first. Where each job has one, the site tells it.
        names = ["cycle_type"] if site.get("job") in (None, "0", "1") else ["job", "cycle_type"]
        for name, argument in zip(names, arguments):
            value = recipe(site.get(name))
            faults.extend(wrong({name: value and value & 0xFFFFFFFF}, {name: argument}))
        counts["cycles"] += 1
    if function["kind"] in calls:
        faults.append(f"two calls of {function['name']} at once")
    calls[function["kind"]] = Call(function, recipe(site.get("expired")) or 0)


reached = None
while True:
    here = gdb.selected_frame().pc()
    if here == reached or (here not in sites and here != ENTRY):
        # Unless a step has led to this one.
        gdb.execute("continue", to_string=True)
        here = gdb.selected_frame().pc()
    reached = here
    for call in [call for call in calls.values() if call.has_returned()]:
        call.compare()
        del calls[call.function["kind"]]
    if not calls and all(counts[name] >= HITS for name, of in (("goals", eviction), ("cycles", cycle)) if of.get("inner")):
        break
    if here == ENTRY:
        arguments = [register(name) for name in ARGUMENTS]
    for function, site in sites.get(here, []):
        if site in function["inner"]:
            begin(function, site)
    for function, site in sites.get(here, []):
        call = calls.get(function["kind"])
        if site not in function["inner"] and call is not None:
            told = {name: recipe(site.get(name)) for name in ("result", "sampled", "expired")}
            if ends(site):
                call.ends.append(told)
gdb.execute("delete")
gdb.execute("detach", to_string=True)
found = f"{len(faults)} wrong, such as {faults[0]}" if faults else "0 wrong"
print(f"sites: {found},", ", ".join(f"{count} {name}" for name, count in counts.items()))
