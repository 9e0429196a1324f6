"""What the PTX ISA has of multimem on sm_90, as a table of its own: tests compare the headers with it."""

# C++ type, PTX type
TYPES = {
    "std::uint32_t": "u32", "std::uint64_t": "u64", "std::int32_t": "s32", "std::int64_t": "s64", "Bits32": "b32",
    "Bits64": "b64", "float16": "f16", "bfloat16": "bf16", "Float16Pair": "f16x2", "BFloat16Pair": "bf16x2",
    "float": "f32", "double": "f64",
}
OPERATIONS = {"add": "add", "min": "min", "max": "max", "bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
SCOPES = {"block": "cta", "cluster": "cluster", "device": "gpu", "system": "sys"}
WIDTHS = (1, 2, 4, 8)

# Operations and widths of each PTX type: load_reduce, reduce, store.
_INTEGER = {"u32": "add min max", "s32": "add min max", "u64": "add min max", "s64": "min max", "b32": "and or xor",
            "b64": "and or xor"}
_VECTORS = {"f16": (2, 4, 8), "bf16": (2, 4, 8), "f16x2": (1, 2, 4), "bf16x2": (1, 2, 4), "f32": (1, 2, 4), "f64": (1,)}


def widths(ptx_type):
    return _VECTORS.get(ptx_type, (1,))


def has_load_reduce(ptx_type, operation, width, single):
    if width not in widths(ptx_type):
        return False
    if ptx_type in _INTEGER:
        return operation in _INTEGER[ptx_type].split() and not single
    if "f16" in ptx_type:
        return operation == "add" or (operation in ("min", "max") and not single)
    return operation == "add" and not single


def has_reduce(ptx_type, operation, width):
    if ptx_type in ("f16x2", "bf16x2") and operation in ("min", "max") and width == 1:
        return False
    return has_load_reduce(ptx_type, operation, width, False)


def has_store(ptx_type, width):
    return width in widths(ptx_type)


def orders(names):
    """(Order, Scope, text) of the orders that an access has; the weak one has no scope."""
    for name in names:
        if name == "weak":
            yield "weak", "none", ".weak"
            continue
        for scope, text in SCOPES.items():
            yield name, scope, f".{name}.{text}"


def vector_text(width):
    return "" if width == 1 else f".v{width}"


def legal_forms():
    """Every form: (call in C++ on `a` of type Vector<T, width>*, T, width, the instruction's name)."""
    for cpp, ptx in TYPES.items():
        for width in WIDTHS:
            for name, operation in OPERATIONS.items():
                for single in (False, True):
                    if not has_load_reduce(ptx, operation, width, single):
                        continue
                    accumulation = "single" if single else "own"
                    for order, scope, text in orders(("weak", "relaxed", "acquire")):
                        yield (f"a[1] = multimem_load_reduce<Operation::{name}, Order::{order}, Scope::{scope}, "
                               f"Accumulation::{accumulation}>(a)", cpp, width,
                               f"multimem.ld_reduce{text}.global.{operation}{'.acc::f32' if single else ''}"
                               f"{vector_text(width)}.{ptx}")
                if has_reduce(ptx, operation, width):
                    for order, scope, text in orders(("relaxed", "release")):
                        yield (f"multimem_reduce<Operation::{name}, Order::{order}, Scope::{scope}>(a, a[1])", cpp, width,
                               f"multimem.red{text}.global.{operation}{vector_text(width)}.{ptx}")
            if has_store(ptx, width):
                for order, scope, text in orders(("weak", "relaxed", "release")):
                    yield (f"multimem_store<Order::{order}, Scope::{scope}>(a, a[1])", cpp, width,
                           f"multimem.st{text}.global{vector_text(width)}.{ptx}")
