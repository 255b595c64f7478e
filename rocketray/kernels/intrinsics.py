"""Machine operations that NumPy arrays lack: unaligned big-endian access, block copies, atomics.

Only kernels may call these. Arrays are ``uint8[n]``, offsets count bytes, and nothing is checked:
the kernel has checked the bounds before. Functions of an ``address`` work on raw memory, which the
caller keeps alive, and, for atomic ones, aligned to the width.

The compiler hoists a plain load out of a waiting loop: loops that wait for another
process use ``atomic_load_*``. Loads acquire, stores release, ``atomic_add_i32`` is sequentially
consistent and so a full fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._compile import cgutils, external, intrinsic, ir, types

_VECTOR_BYTES = 64  # whose mask fills a word of 64 bits


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


# Numbers in files are at any position. So each load and store says that its alignment is 1: LLVM
# takes the type's for granted, and may choose an instruction that faults.
def _loader(bits: int) -> Callable[..., Any]:
    @intrinsic
    def load(_typing: Any, array: Any, _offset: Any) -> Any:
        """Return the signed big-endian number at *offset*."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = ir.IntType(bits)
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, width.as_pointer()))
            value.align = 1
            value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(array, types.intp), generate

    return load


def _storer(bits: int) -> Callable[..., Any]:
    @intrinsic
    def store(_typing: Any, array: Any, _offset: Any, _value: Any) -> Any:
        """Write the low bits of *value* at *offset*, big-endian."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = ir.IntType(bits)
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = args[2] if bits == 64 else builder.trunc(args[2], width)
            instruction = builder.store(
                builder.bswap(value), builder.bitcast(pointer, width.as_pointer())
            )
            instruction.align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int64), generate

    return store


def _address_loader(bits: int) -> Callable[..., Any]:
    @intrinsic
    def load(_typing: Any, _address: Any) -> Any:
        """Return the signed big-endian number at *address*, of any alignment."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            value = builder.load(_word(builder, args[0], bits))
            value.align = 1
            value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(types.intp), generate

    return load


load_i16, load_i32, load_i64 = _loader(16), _loader(32), _loader(64)
load_i32_at, load_i64_at = _address_loader(32), _address_loader(64)
store_i16, store_i32, store_i64 = _storer(16), _storer(32), _storer(64)


@intrinsic
def load_native_u64(_typing: Any, array: Any, _offset: Any) -> Any:
    """Return the eight bytes at *offset* in the machine's own order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        value = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(array, types.intp), generate


@intrinsic
def copy(_typing: Any, target: Any, _to: Any, source: Any, _from: Any, _size: Any) -> Any:
    """Copy *size* bytes from *source* at *from* to *target* at *to*; they must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@intrinsic
def copy16(_typing: Any, target: Any, _to: Any, source: Any, _from: Any) -> Any:
    """Copy exactly 16 bytes: one load and one store."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 16).as_pointer()
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        origin = _pointer(context, builder, signature.args[2], args[2], args[3])
        value = builder.load(builder.bitcast(origin, vector))
        value.align = 1
        builder.store(value, builder.bitcast(to, vector)).align = 1
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


@intrinsic
def separator_mask(_typing: Any, array: Any, _offset: Any) -> Any:
    """Return which of the 64 bytes at *offset* are 0x01 or 0x02: bit i for byte i."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), _VECTOR_BYTES)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        value = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        value.align = 1
        # byte - 1 < 2, unsigned: true only for 1 and 2, because 0 wraps to 255
        shifted = builder.sub(value, ir.Constant(vector, [1] * _VECTOR_BYTES))
        hits = builder.icmp_unsigned("<", shifted, ir.Constant(vector, [2] * _VECTOR_BYTES))
        return builder.bitcast(hits, ir.IntType(_VECTOR_BYTES))

    return types.uint64(array, types.intp), generate


@intrinsic
def count_trailing_zeros(_typing: Any, _value: Any) -> Any:
    """Return the number of the lowest set bit; *value* is not 0."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def release_fence(_typing: Any) -> Any:
    """Prevent the compiler and the processor from moving stores across this point."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def pause(_typing: Any) -> Any:
    """Leave the core to its other thread for some 20 to 50 ns; x86-64 only."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        name = "llvm.x86.sse2.pause"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def cycles(_typing: Any) -> Any:
    """Return the time stamp of the processor, which grows at a steady 2 to 4 GHz; x86-64 only."""

    def generate(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        name = "llvm.readcyclecounter"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])

    return types.int64(), generate


@intrinsic
def address(_typing: Any, array: Any, _offset: Any) -> Any:
    """Return the address of the byte at *offset*."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.ptrtoint(pointer, ir.IntType(64))

    return types.intp(array, types.intp), generate


def _word(builder: Any, location: Any, bits: int) -> Any:
    return builder.inttoptr(location, ir.IntType(bits).as_pointer())


@intrinsic
def atomic_load_i64(_typing: Any, _address: Any) -> Any:
    """Return the native number at *address*, 8-aligned; later reads stay behind it."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0], 64), "acquire", 8)

    return types.int64(types.intp), generate


@intrinsic
def atomic_load_u32(_typing: Any, _address: Any) -> Any:
    """Return the native unsigned number at *address*, 4-aligned; later reads stay behind it."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        value = builder.load_atomic(_word(builder, args[0], 32), "acquire", 4)
        return builder.zext(value, ir.IntType(64))

    return types.int64(types.intp), generate


@intrinsic
def atomic_store_i64(_typing: Any, _address: Any, _value: Any) -> Any:
    """Publish *value* at *address*, 8-aligned: its readers see all that was written before."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0], 64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), generate


@intrinsic
def atomic_add_i32(_typing: Any, _address: Any, _delta: Any) -> Any:
    """Add *delta* to the word at *address*, 4-aligned, and return the previous value."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        delta = builder.trunc(args[1], ir.IntType(32))
        before = builder.atomic_rmw("add", _word(builder, args[0], 32), delta, "seq_cst")
        return builder.sext(before, ir.IntType(64))

    return types.int64(types.intp, types.int64), generate


syscall: Any = external("syscall", lambda: types.int64(*[types.int64] * 7))
"""libc's ``syscall(number, a, b, c, d, e, f)``."""
