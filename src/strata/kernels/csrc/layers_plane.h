// A plane of a paged cache, as kernels/views.py's PagedPlane describes it.
#pragma once

#include <stdint.h>

namespace strata {

enum class KvType : int64_t { f32, bf16, int8 };  // kernels/addresses.py has the same numbers
constexpr int64_t kKvBlock = 32;                  // values of an int8 entry that share a scale

// In a list of entries or blocks: nothing here, neither read nor written (a mean of nothing is 0).
constexpr int32_t kNoEntry = -1;

// Pages of [heads][page][dim] values. Methods are always inlined: a shared copy could hold any variant's instructions.
struct Plane {
    const void* data;
    const int32_t* table;  // [slots][pages_per_slot]
    int64_t page, pages_per_slot, heads, dim;
    KvType type;
    const float* scales;  // one for kKvBlock values, with int8

    __attribute__((always_inline)) const int32_t* pages_of(int64_t slot) const { return table + slot * pages_per_slot; }
    // Where head 0 of an entry lies, in units of `dim` values; head h lies h * page further.
    __attribute__((always_inline)) int64_t place(const int32_t* pages, int64_t entry) const {
        return pages[entry / page] * heads * page + entry % page;
    }
    __attribute__((always_inline)) int64_t head_step() const { return page * dim; }
    __attribute__((always_inline)) int64_t width() const { return heads * dim; }
    __attribute__((always_inline)) int64_t value_bytes() const {
        return type == KvType::f32 ? 4 : type == KvType::bf16 ? 2 : 1;
    }
    __attribute__((always_inline)) const float* floats() const { return static_cast<const float*>(data); }
};

}  // namespace strata
