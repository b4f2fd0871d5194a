"""What else computes attention here: PyTorch's fused kernels, FlexAttention, and the formula written out.

A peer is a function of no arguments that computes the formula on tensors it holds. It is made once, outside the timing;
what it compiles it compiles then.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec.errors import ArgumentError
from tilec.formula import Formula, Roles, seen

BACKENDS = {
    "FLASH_ATTENTION": "flash",
    "CUDNN_ATTENTION": "cuDNN",
    "EFFICIENT_ATTENTION": "efficient",
    "MATH": "math",
}
"""PyTorch's kernels behind scaled_dot_product_attention."""


@dataclass(frozen=True)
class Peer:
    """Another way to compute the same. `make` may take long, or raise what the library raises: then it is refused."""

    name: str
    make: Callable[[], Callable[[], Any]]


def installed(name: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(name) is not None


def _module(name: str) -> Any:
    return importlib.import_module(name)


def standard(f: Formula, r: Roles, tensors: Mapping[str, Any], on_gpu: bool) -> list[Peer]:
    """The peers that can compute a formula (its values fixed) on PyTorch tensors, fused ones first."""
    q, k, v = (tensors[n] for n in r.names)
    slopes = None if r.slopes is None else tensors[r.slopes]
    out: list[Peer] = []
    if f.cap is None:
        names = BACKENDS if on_gpu else {n: BACKENDS[n] for n in ("FLASH_ATTENTION", "MATH")}
        out += [
            Peer(f"torch SDPA {short}", _Sdpa(f, q, k, v, slopes, name))
            for name, short in names.items()
        ]
    if on_gpu:
        out.append(Peer("FlashAttention-4", _Flash4(f, q, k, v)))
    out.append(Peer("torch FlexAttention", _Flex(f, q, k, v, slopes)))
    out.append(Peer("torch, written out", lambda: lambda: written_out(f, q, k, v, slopes)))
    return out


def _positions(f: Formula, q: Any, k: Any) -> tuple[Any, Any]:
    torch = _module("torch")
    m, n = q.shape[2], k.shape[2]
    p = torch.arange(m, device=q.device)[:, None] + (n - m if f.aligned else 0)
    return p, torch.arange(n, device=q.device)[None, :]


def _bias(f: Formula, p: Any, j: Any, slopes: Any) -> Any:
    far = (p - j).abs() if f.distance == "absolute" else p - j
    return -slopes.float()[:, None, None] * far


def written_out(f: Formula, q: Any, k: Any, v: Any, slopes: Any) -> Any:
    """The formula as a sequence of PyTorch calls: every score in memory."""
    torch = _module("torch")
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scale = max(q.shape[3], 1) ** -0.5 if f.scale is None else f.scale
    s = (q @ k.transpose(2, 3)).float() * scale
    if f.cap is not None:
        s = torch.tanh(s / f.cap) * f.cap
    p, j = _positions(f, q, k)
    if f.slopes is not None:
        s = s + _bias(f, p, j, slopes)
    if f.mask != "full":
        s = s.masked_fill(~seen(f, p, j), float("-inf"))
    return torch.softmax(s, -1).to(v.dtype) @ v


@dataclass(frozen=True)
class _Sdpa:
    """`scaled_dot_product_attention` with one of its kernels."""

    f: Formula
    q: Any
    k: Any
    v: Any
    slopes: Any
    backend: str

    def __call__(self) -> Callable[[], Any]:
        attention, functional = _module("torch.nn.attention"), _module("torch.nn.functional")
        f, q, k, v = self.f, self.q, self.k, self.v
        scale = None if f.scale is None else float(f.scale)
        top_left = not f.aligned or q.shape[2] == k.shape[2]
        causal = f.mask == "causal" and top_left and f.slopes is None
        mask = None if causal or f.mask == "full" and f.slopes is None else self.mask()
        which = getattr(attention.SDPBackend, self.backend)
        grouped = q.shape[1] != k.shape[1]

        def run() -> Any:
            with attention.sdpa_kernel(which):
                return functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
                )

        run()
        return run

    def mask(self) -> Any:
        f, q = self.f, self.q
        p, j = _positions(f, q, self.k)
        keep = seen(f, p, j)
        if f.slopes is None:
            return keep
        return _bias(f, p, j, self.slopes).masked_fill(~keep, float("-inf")).to(q.dtype)[None]


SIDES: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "causal window": lambda w: (w - 1, 0),
    "causal window and itself": lambda w: (w, 0),
    "window": lambda w: (w, w),
}
"""How many positions FlashAttention is to see to the left and to the right, by mask."""


def _first(made: Any) -> Any:
    return cast("tuple[Any, ...]", made)[0] if isinstance(made, tuple) else made


@dataclass(frozen=True)
class _Flash4:
    """FlashAttention-4 (the package flash-attn-4), whose tensors are [b, n, h, d] and whose masks are aligned at the end."""

    f: Formula
    q: Any
    k: Any
    v: Any

    def __call__(self) -> Callable[[], Any]:
        f = self.f
        if f.slopes is not None or f.mask not in ("full", "causal", *SIDES):
            raise ValueError(f"it has no {f}")
        if f.mask != "full" and not f.aligned and self.q.shape[2] != self.k.shape[2]:
            raise ValueError("it counts positions from the end")
        more: dict[str, Any] = {"causal": f.mask.startswith("causal")}
        if f.mask in SIDES and f.window is not None:
            more["window_size"] = SIDES[f.mask](int(f.window))
        if f.scale is not None:
            more["softmax_scale"] = float(f.scale)
        if f.cap is not None:
            more["softcap"] = float(f.cap)
        try:
            call = _module("flash_attn.cute").flash_attn_func
        except ModuleNotFoundError as e:
            raise ValueError(f"{e}; `pip install flash-attn-4` installs it") from e
        q, k, v = (x.transpose(1, 2).contiguous() for x in (self.q, self.k, self.v))

        def run() -> Any:
            made = call(q, k, v, **more)
            return _first(made).transpose(1, 2)

        run()
        return run


@dataclass(frozen=True)
class _Flex:
    """`flex_attention`, compiled, with a block mask."""

    f: Formula
    q: Any
    k: Any
    v: Any
    slopes: Any

    def __call__(self) -> Callable[[], Any]:
        torch, flex = _module("torch"), _module("torch.nn.attention.flex_attention")
        if any(0 in x.shape for x in (self.q, self.k, self.v)):
            # its compiled code divides by the sizes, which ends the process
            raise ValueError("tensors without elements are not handed to it")
        # past the limit of recompilations it would run unfused, without saying so
        torch._dynamo.config.recompile_limit = 10_000
        f, q, k, v = self.f, self.q, self.k, self.v
        shift = k.shape[2] - q.shape[2] if f.aligned else 0
        score, blocks = self.score(torch, shift), self.blocks(flex, shift)
        scale = None if f.scale is None else float(f.scale)
        compiled = torch.compile(flex.flex_attention, dynamic=False)
        grouped = q.shape[1] != k.shape[1]

        def run() -> Any:
            return compiled(
                q, k, v, score_mod=score, block_mask=blocks, scale=scale, enable_gqa=grouped
            )

        with torch.no_grad():
            run()
        return run

    def blocks(self, flex: Any, shift: int) -> Any:
        """The block mask; None where everything is seen. `shift`: what is added to the position of a query."""
        f, q, k = self.f, self.q, self.k
        if f.mask == "full":
            return None

        def keep(b: Any, h: Any, i: Any, j: Any) -> Any:
            return seen(f, i + shift, j)

        return flex.create_block_mask(
            keep, None, None, q.shape[2], k.shape[2], device=str(q.device)
        )

    def score(self, torch: Any, shift: int) -> Callable[..., Any] | None:
        """What is made of a score: a soft cap, and what distance takes off it. None where nothing is."""
        f, slopes = self.f, self.slopes
        cap = None if f.cap is None else float(f.cap)
        if cap is None and f.slopes is None:
            return None

        def changed(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            if cap is not None:
                s = torch.tanh(s / cap) * cap
            if f.slopes is not None:
                far = i + shift - j
                s = s - slopes[h] * (far.abs() if f.distance == "absolute" else far)
            return s

        return changed


def named(text: str, tensors: Sequence[Any], scalars: Mapping[str, Any]) -> Peer:
    """The peer of `module:function`: it is called with the tensors in order, and with the scalars by name.

    Raises ArgumentError for a text of another form.
    """
    module, colon, function = text.partition(":")
    if not colon or not module or not function.isidentifier():
        raise ArgumentError(f"--peer: {text!r} is not MODULE:FUNCTION")

    def make() -> Callable[[], Any]:
        call = getattr(importlib.import_module(module), function)
        call(*tensors, **scalars)
        return lambda: call(*tensors, **scalars)

    return Peer(text, make)
