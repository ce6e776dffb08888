"""A GPU that is not there: tensors that say they are on one, and are computed on the CPU.

For the code that only runs on GPUs, where there is none. What is checked is what a CPU cannot show, because there host
and device share their memory:

- tensors of the host and of the device are not mixed,
- what was copied to the host is not read before it has arrived (until then it holds rubbish),
- who makes the host wait for the device is counted, and what is given to it.

Triton's kernels run in its interpreter, where there is one. A CUDA graph runs what was captured once more.

What it does not see: memory of the host that is written to while it is being copied to the device (that is done at
once), other streams, other GPUs. Kernels, precision, memory and speed are the CPU's. `tests/gpu` asks a real one.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from tests.core.triton import IS_INTERPRETED

GPU = torch.device("cuda", 0)
GIB = 2**30
aten = torch.ops.aten

_WAITS = {
    aten._local_scalar_dense.default,
    aten.is_nonzero.default,
    aten.item.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.bincount.default,
    aten.allclose.default,
    aten.where.default,
    aten.argwhere.default,
    aten.repeat_interleave.Tensor,
    aten.repeat_interleave.self_Tensor,
}
"""Operations whose result, or its shape, the host must know. In inference mode composite ones come here as they are."""

_COPIES = {aten.copy_.default, aten._to_copy.default, aten.to.device, aten.to.dtype_layout, aten.to.other}
_MAKES_ROOM = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
"""What launches nothing, though its result is new."""
_INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class GpuTensor(Tensor):
    """A tensor of the device. `content` has its numbers."""

    content: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> GpuTensor:
        # Never an inference tensor: a view of an ordinary one, made in inference mode, is ordinary, too.
        with torch.inference_mode(False):
            tensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                real.shape,
                strides=real.stride(),
                storage_offset=real.storage_offset(),
                dtype=real.dtype,
                # torch's own C++ believes it to be on the device meta: a build without CUDA can do nothing with others.
                device="meta",
                requires_grad=real.requires_grad,
            )
        tensor.content = real
        return tensor

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def __setitem__(self, index: Any, value: Any) -> None:
        """Of a real tensor of the device torch makes the number a tensor of the host, where tensors say which."""
        parts = index if isinstance(index, tuple) else (index,)
        if not isinstance(value, Tensor) and any(isinstance(part, Tensor) for part in parts):
            PretendedGpu.here().wait("a number set where tensors say")
        super().__setitem__(index, value)

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, other: GpuTensor) -> None:
        assert other.shape == self.shape
        self.content = other.content

    def data_ptr(self) -> int:
        return self.content.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.content.untyped_storage()

    def tolist(self) -> Any:
        PretendedGpu.here().wait("tolist")
        return self.content.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"GpuTensor({self.content!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return PretendedGpu.here().dispatch(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Sees the functions that have no tensor of the device among their arguments: those that make one."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._gpu.dispatch(func, args, kwargs or {})


class PretendedGpu:
    """What happens between host and device.

    Attributes:
        waits: who made the host wait for the device, and how often: "function at file:line". Events are not among them.
        num_begun: copies to the host that were begun.
        most_behind: of those, the most that were begun between an event and the wait for it: what the device has to do
            while the host waits.
        launches: what was given to the device, and how often: kernels of Triton by name, and torch's operations, each
            of which is at least a launch. Views and room for tensors are none.
        num_replays: graphs that were run.
    """

    _here: PretendedGpu | None = None

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self.num_begun = self.most_behind = self.num_replays = 0
        self._under_way: deque[tuple[Tensor, Tensor]] = deque()
        self._pinned: dict[int, Tensor] = {}  # kept alive, so that no other memory gets their addresses

    @classmethod
    def here(cls) -> PretendedGpu:
        """The one that is there now."""
        assert cls._here is not None, "a tensor of the device has outlived it"
        return cls._here

    @property
    def num_arrived(self) -> int:
        """Copies that the host may read."""
        return self.num_begun - len(self._under_way)

    def arrive(self, num_begun: int) -> None:
        """The first of the copies to the host, so many of all that were ever begun."""
        while self.num_arrived < num_begun:
            target, content = self._under_way.popleft()
            target.copy_(content)

    def wait(self, function: str) -> None:
        """The host waits for the device."""
        self.arrive(self.num_begun)
        self.waits[f"{function} at {_caller()}"] += 1

    def pin(self, tensor: Tensor) -> Tensor:
        """A copy in page-locked memory."""
        assert not isinstance(tensor, GpuTensor)
        copy = tensor.clone()
        self._pinned[copy.untyped_storage().data_ptr()] = copy
        return copy

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Runs one operation where its tensors are."""
        result = self._run(func, args, kwargs)
        given, made = (
            [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, GpuTensor)] for tree in ((args, kwargs), result)
        )
        if func not in _MAKES_ROOM and (given or made):
            places = {tensor.untyped_storage().data_ptr() for tensor in given}
            is_new = any(tensor.numel() and tensor.untyped_storage().data_ptr() not in places for tensor in made)
            leaves_it = not made and isinstance(result, Tensor) and result.numel() > 0
            is_written = _mutated(func, args, kwargs) is not None and any(tensor.numel() for tensor in given)
            self.launches[str(func)] += is_new or leaves_it or is_written
        return result

    def launch(self, run: Callable[..., Any], kernel: Any, args: Any, named: dict[str, Any]) -> Any:
        """Runs a kernel of Triton."""
        for leaf in (*args, *named.values()):
            assert isinstance(leaf, GpuTensor) or not isinstance(leaf, Tensor), "a kernel got a tensor of the host"
        self.launches[kernel.__name__] += 1
        real_args, real_named = tree_map(_on_cpu, (args, named))
        return run(kernel, *real_args, **real_named)

    def capture(self, run: Callable[[], Tensor], device: torch.device, pool: Any) -> Any:
        """As triton_layers.capture. What runs again has to be launched as it was the first time."""
        assert device == GPU

        def launched() -> tuple[Tensor, Counter[str]]:
            before, self.launches = self.launches, Counter()
            try:
                return run(), self.launches
            finally:
                self.launches = before

        out, captured = launched()

        def replay() -> None:
            again, launches = launched()
            assert launches == captured
            out.copy_(again)
            self.num_replays += 1

        return replay, out, pool

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        leaves, _ = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        on_gpu = any(isinstance(leaf, GpuTensor) for leaf in tensors)
        asked = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
        if not on_gpu and (asked is None or asked.type == "cpu"):
            return func(*args, **kwargs)
        if func is aten._has_compatible_shallow_copy_type.default:
            return False  # Module.to makes new parameters, then
        self._refuse_mixing(func, args, tensors)
        if func in _WAITS and on_gpu:
            self.wait(str(func))
        to_gpu = on_gpu if asked is None else asked.type != "cpu"
        real_args, real_kwargs = tree_map(_on_cpu, (args, kwargs))
        if func in _COPIES:
            return self._copy(func, args, kwargs, real_args, real_kwargs, to_gpu)
        if func in _INDEXING:
            self._check_indices(func, args)
        result = func(*real_args, **real_kwargs)
        mutated = _mutated(func, args, kwargs)
        if mutated is not None:
            return mutated
        return tree_map(lambda leaf: GpuTensor(leaf) if isinstance(leaf, Tensor) and to_gpu else leaf, result)

    def _refuse_mixing(self, func: Any, args: Any, tensors: list[Tensor]) -> None:
        on_gpu = [isinstance(tensor, GpuTensor) for tensor in tensors]
        if func in _COPIES or func in _INDEXING or all(on_gpu) or not any(on_gpu):
            return
        strangers = [tensor for tensor, is_there in zip(tensors, on_gpu, strict=True) if not is_there and tensor.dim()]
        if strangers:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} got some of the host")

    def _check_indices(self, func: Any, args: Any) -> None:
        own, indices = args[0], [index for index in args[1] if index is not None]
        values = args[2:3]
        assert isinstance(own, GpuTensor), f"{func}: a tensor of the host is indexed by one of the device"
        for index in indices:
            if index.dtype in (torch.bool, torch.uint8):
                self.wait(f"{func} by a mask")
            if not isinstance(index, GpuTensor):
                self.wait(f"{func} by indices of the host")
        for value in values:
            if value.dim() and not isinstance(value, GpuTensor):
                raise RuntimeError(f"{func}: values of the host")

    def _copy(self, func: Any, args: Any, kwargs: Any, real_args: Any, real_kwargs: Any, to_gpu: bool) -> Any:
        names = [argument.name for argument in func._schema.arguments]
        non_blocking = bool((dict(zip(names, args, strict=False)) | kwargs).get("non_blocking", False))
        if func is aten.copy_.default:
            target, source = args[0], args[1]
            real_target, real_source = real_args[0], real_args[1]
            if isinstance(source, GpuTensor) and not isinstance(target, GpuTensor):
                self.wait(str(func))  # nobody here copies so without waiting
            elif isinstance(target, GpuTensor) and not isinstance(source, GpuTensor) and source.dim():
                self._from_host(source, non_blocking)
            real_target.copy_(real_source)
            return target
        source = args[0]
        was_on_gpu = isinstance(source, GpuTensor)
        result = func(*real_args, **real_kwargs)
        if was_on_gpu == to_gpu:
            if result is real_args[0]:
                return source
            return GpuTensor(result) if to_gpu else result
        if result is real_args[0] or result.untyped_storage().data_ptr() == real_args[0].untyped_storage().data_ptr():
            result = result.clone()
        if to_gpu:
            self._from_host(source, non_blocking)
            return GpuTensor(result)
        if not non_blocking:
            self.wait(str(func))
            return result
        rubbish = torch.empty_like(result)
        rubbish.view(torch.uint8).fill_(0x5A)
        self._under_way.append((rubbish, result))
        self.num_begun += 1
        return rubbish

    def _from_host(self, source: Tensor, non_blocking: bool) -> None:
        if source.untyped_storage().data_ptr() not in self._pinned or not source.is_contiguous():
            self.wait("copy from ordinary memory")
        elif not non_blocking:
            self.wait("copy to the device")


def _on_cpu(leaf: Any) -> Any:
    if isinstance(leaf, GpuTensor):
        return leaf.content
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf


def _mutated(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function that writes in place or to `out` returns: its own argument."""
    written = [
        kwargs[argument.name] if argument.name in kwargs else args[place]
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    assert len(written) <= 1, f"{func} writes to several tensors"
    return written[0] if written else None


def _caller() -> str:
    """The line of this project that is being executed, or that calls transformers' code, which is."""
    by = ""
    for frame in reversed(traceback.extract_stack()):
        by = by or ("transformers, called at " if "/transformers/models/" in frame.filename else "")
        ours = any(f"/{house}/" in frame.filename for house in ("hpd_core", "pipelines", "bench"))
        if ours and "/tests/" not in frame.filename:
            return f"{by}{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return "a test"


class _Event:
    def __init__(self) -> None:
        self._num_begun = PretendedGpu.here().num_begun

    def synchronize(self) -> None:
        gpu = PretendedGpu.here()
        if gpu.num_arrived < self._num_begun:  # else there is nothing to wait for
            gpu.most_behind = max(gpu.most_behind, gpu.num_begun - self._num_begun)
        gpu.arrive(self._num_begun)


class _Stream:
    def record_event(self) -> _Event:
        return _Event()


def _with_index(to: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`Tensor.to`, told which GPU: a build without CUDA cannot find out which is the current one."""

    def named(leaf: Any) -> Any:
        if not isinstance(leaf, torch.device) and not (isinstance(leaf, str) and leaf.startswith("cuda")):
            return leaf
        device = torch.device(leaf)
        assert not device.index, f"there is no {device}"
        return GPU if device.type == "cuda" else device

    def told(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return to(tensor, *map(named, args), **{name: named(value) for name, value in kwargs.items()})

    return told


def _made_on_the_host(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor`, by way of the host: a build without CUDA cannot copy to the device by itself."""

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        made = make(data, **options)
        return made if device is None or torch.device(device).type == "cpu" else made.to(GPU)

    return tensor


def _interpret(patch: pytest.MonkeyPatch, gpu: PretendedGpu) -> None:
    from triton.runtime.interpreter import InterpretedFunction

    from hpd_core.layers import triton_layers

    run = InterpretedFunction.run

    def launched(kernel: Any, *args: Any, **named: Any) -> Any:
        return gpu.launch(run, kernel, args, named)

    patch.setattr(InterpretedFunction, "run", launched)
    patch.setattr(triton_layers, "capture", gpu.capture)


@contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """A machine with one GPU, until the block ends.

    Load a model before: of the first one that it loads, transformers keeps things that would outlive the block.
    """
    gpu = PretendedGpu()
    functions: dict[str, Callable[..., Any]] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "current_stream": lambda device=None: _Stream(),
        "synchronize": lambda device=None: gpu.wait("synchronize"),
        "empty_cache": lambda: None,
        "is_bf16_supported": lambda including_emulation=True: True,
        "get_device_name": lambda device=None: "pretended GPU",
        "get_device_capability": lambda device=None: (9, 0),
        "device": lambda device: nullcontext(),
        "mem_get_info": lambda device=None: (4 * GIB, 4 * GIB),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, function in functions.items():
            patch.setattr(torch.cuda, name, function)
        patch.setattr(Tensor, "to", _with_index(Tensor.to))
        patch.setattr(torch, "tensor", _made_on_the_host(torch.tensor))
        patch.setattr(Tensor, "pin_memory", lambda tensor, device=None: gpu.pin(tensor))
        patch.setattr(PretendedGpu, "_here", gpu)
        if IS_INTERPRETED:
            _interpret(patch, gpu)
        run = threading.Thread.run

        def run_with_gpu(thread: threading.Thread) -> None:
            with _Mode(gpu):
                run(thread)

        patch.setattr(threading.Thread, "run", run_with_gpu)  # modes are a thread's own
        with _Mode(gpu):
            yield gpu
