// ngram_rows: one thread a hash head of a row; integers as ngram/naive.py.
#pragma once

#include "device.h"

namespace strata::STRATA_ISA {

// tokens [slots, context]; multipliers [orders]; sizes, offsets [heads], orders - 1 runs of equal length; out
// [rows, heads], of `count` values.
STRATA_KERNEL(ngram_rows, (const int64_t* tokens, const int32_t* slot, const int32_t* position,
                           const int64_t* multipliers, const int64_t* sizes, const int64_t* offsets, int64_t* out,
                           int64_t count, int64_t context, int64_t orders, int64_t heads, int64_t end_of_text)) {
    const int64_t i = element();
    if (i >= count) return;
    const int64_t row = i / heads, head = i % heads, order = head / (heads / (orders - 1)) + 1, at = position[row];
    const int64_t* now = tokens + slot[row] * context + at;
    // The product's low 64 bits, without the overflow that signed integers may not have.
    uint64_t mix = static_cast<uint64_t>(now[0]) * static_cast<uint64_t>(multipliers[0]);
    bool cut = false;
    for (int64_t back = 1; back <= order; ++back) {
        cut = cut || at < back || now[-back] == end_of_text;
        const int64_t token = cut ? end_of_text : now[-back];
        mix ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(multipliers[back]);
    }
    out[i] = static_cast<int64_t>(mix) % sizes[head] + offsets[head];
}

}  // namespace strata::STRATA_ISA
