"""A plan as text."""

from __future__ import annotations

import itertools

from tilec.backends.cuda.hopper.asked import asked
from tilec.backends.cuda.hopper.early import early
from tilec.backends.cuda.hopper.plan import Loader, Plan
from tilec.backends.cuda.hopper.steps import (
    Acquire,
    Advance,
    Compute,
    Fetch,
    First,
    Hear,
    Issue,
    Leave,
    Loop,
    Mask,
    More,
    Next,
    Query,
    Release,
    Settle,
    Share,
    Single,
    Step,
    Stream,
    Turn,
)


def show(plan: Plan) -> str:
    """The plan as text."""
    s, c = plan.structure, plan.schedule
    low, high = c.registers
    lines = [
        f"plan {s.kernel.name}   {c.threads} threads, shared {plan.shared} bytes, schedule {c}",
        *(f"  {r.name}: {r.count} × {r.bytes} bytes at {r.offset}" for r in plan.rooms.values()),
        *(f"  barrier {n}[{k}]: {count} arrivals" for n, (_, count, k) in plan.barriers.items()),
        f"  role load (1 warpgroup, {low} registers)",
        *(f"    {_load(x)}" for x in plan.loaders),
        f"  role compute ({c.warpgroups} warpgroups, {high} registers, {plan.fragments} hold tiles)",
    ]
    lines += ["    " + line for step in plan.begin for line in _show(plan, step)]
    lines.append("    a tile")
    lines += ["      " + line for step in plan.steps for line in _show(plan, step)]
    return "\n".join(lines) + "\n"


def _load(x: Loader) -> str:
    warps = f"warp {x.first}" if x.warps == 1 else f"warps {x.first}-{x.first + x.warps - 1}"
    tiles = ", ".join(f"{'computes ' if t.computed else ''}{t.name}" for t in x.tiles)
    return f"{warps}: {tiles or 'deals tiles'}"


def _show(plan: Plan, step: Step) -> list[str]:
    """A step, and those inside it."""
    match step:
        case First():
            return ["first window", *_inside(plan, *step.shared, *itertools.chain(*step.blocks))]
        case Loop():
            return [f"loop {step.block}", *_inside(plan, *step.steps)]
        case Stream():
            lines = ["windows as they are announced", *_inside(plan, step.hear, *step.shared)]
            for k, steps in enumerate(step.blocks):
                lines += [f"  block {k}", *("  " + x for x in _inside(plan, *steps))]
            return lines
        case More():
            return ["if there is a next tile", *_inside(plan, *step.steps)]
        case _:
            return [_line(plan, step)]


def _inside(plan: Plan, *steps: Step) -> list[str]:
    return ["  " + line for step in steps for line in _show(plan, step)]


def _line(plan: Plan, step: Single) -> str:
    """A step that has no others inside."""
    s, late = plan.structure, " of the window before"
    match step:
        case Hear():
            return f"acquire {step.ring}, hear which window it is"
        case Leave():
            return "the outputs leave"
        case Fetch():
            return f"ask for {', '.join(x.load.tensor for x in asked(s, s.blocks[step.block]))}"
        case Mask():
            return f"make masks {', '.join(early(s, s.blocks[step.block]))}"
        case Compute():
            return f"compute {step.part} of block {step.block}{' (first)' if step.first else ''}"
        case Issue(what="heads"):
            return f"issue heads: {', '.join(h.name for h in s.blocks[0].heads)}"
        case Issue():
            return f"issue {step.what}: {', '.join(t.name for t in s.blocks[0].tails)}"
        case Settle():
            return f"settle all but {step.pending}: {', '.join(step.done)} done"
        case Share():
            return "add up the heads of both slices"
        case Turn():
            return "begin turn" if step.begin else "pass turn"
        case Next():
            return "hear which tile is next"
        case Query():
            return "acquire rows" if step.begin else "release rows"
        case Acquire():
            return f"acquire {step.ring}{late if step.late else ''}"
        case Advance():
            return f"advance {step.ring}"
        case Release():
            return f"release {step.ring}{late if step.late else ''}"
