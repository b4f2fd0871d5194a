"""A plan as text."""

from __future__ import annotations

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
    match step:
        case First():
            inner = [x for y in step.shared for x in _show(plan, y)]
            for steps in step.blocks:
                inner += [x for y in steps for x in _show(plan, y)]
            return ["first window", *("  " + x for x in inner)]
        case Loop():
            inner = [x for y in step.steps for x in _show(plan, y)]
            return [f"loop {step.block}", *("  " + x for x in inner)]
        case Hear():
            return [f"acquire {step.ring}, hear which window it is"]
        case Stream():
            inner = [x for y in step.shared for x in _show(plan, y)]
            for k, steps in enumerate(step.blocks):
                inner += [f"block {k}", *("  " + x for y in steps for x in _show(plan, y))]
            return [
                "windows as they are announced",
                *("  " + x for x in (*_show(plan, step.hear), *inner)),
            ]
        case More():
            inner = [x for y in step.steps for x in _show(plan, y)]
            return ["if there is a next tile", *("  " + x for x in inner)]
        case Leave():
            return ["the outputs leave"]
        case Fetch():
            found = asked(plan.structure, plan.structure.blocks[step.block])
            return [f"ask for {', '.join(x.load.tensor for x in found)}"]
        case Mask():
            found = early(plan.structure, plan.structure.blocks[step.block])
            return [f"make masks {', '.join(found)}"]
        case Compute():
            return [f"compute {step.part} of block {step.block}{' (first)' if step.first else ''}"]
        case Issue():
            b = plan.structure.blocks[0]
            names = [h.name for h in b.heads] if step.what == "heads" else [t.name for t in b.tails]
            return [f"issue {step.what}: {', '.join(names)}"]
        case Settle():
            return [f"settle all but {step.pending}: {', '.join(step.done)} done"]
        case Share():
            return ["add up the heads of both slices"]
        case Turn():
            return ["begin turn" if step.begin else "pass turn"]
        case Next():
            return ["hear which tile is next"]
        case Query():
            return ["acquire rows" if step.begin else "release rows"]
        case Acquire():
            return [f"acquire {step.ring}{' of the window before' if step.late else ''}"]
        case Advance():
            return [f"advance {step.ring}"]
        case Release():
            return [f"release {step.ring}{' of the window before' if step.late else ''}"]
