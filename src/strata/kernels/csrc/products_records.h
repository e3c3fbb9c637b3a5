// Activations of many rows as records (docs/numerics.md 1.1): one per group of 16 sub-blocks, with everything that a
// tile reads of it side by side:
//
//     q int8 [step 0 .. sub / 4 - 1][sub-block 0 .. 15][4]      d float [16]      m int32 [16], the sums of q
//
// A row is a run of records: a tile follows one pointer per row. Missing sub-blocks of the last group are zeros.
#pragma once

#include "products_quantise.h"

namespace strata::STRATA_ISA {

template <int sub>
constexpr int64_t record_bytes = 16 * sub + 128;

struct Records {
    uint8_t* data;  // null: no weight reads this size of sub-block
    int64_t groups;
    int64_t row_bytes;
    uint8_t* at(int64_t row) const { return data ? data + row * row_bytes : nullptr; }
};

static inline size_t records_bytes(int64_t rows, int64_t cols, int sub) {
    return static_cast<size_t>(rows * groups_of(cols, sub)) * (16 * sub + 128);
}

// Places the records of `rows` rows at `at` (aligned to 64) and returns the end.
static inline uint8_t* place_records(Records& to, uint8_t* at, int64_t rows, int64_t cols, int sub) {
    to.groups = groups_of(cols, sub);
    to.row_bytes = to.groups * (16 * sub + 128);
    to.data = at;
    return at + rows * to.row_bytes;
}

// For quantise_groups: into the records of one row, unless null.
template <int sub>
static inline auto into_records(uint8_t* records) {
    return [records](int64_t group, const int8_t* q, const float* d) {
        if (!records) return;
        uint8_t* record = records + group * record_bytes<sub>;
        float* scales = reinterpret_cast<float*>(record + 16 * sub);
        put_group<sub>(record, scales, reinterpret_cast<int32_t*>(scales + 16), q, d);
    };
}

// A row of `cols` values (a multiple of 32) into the layouts that are asked for.
static inline void quantise_records(const float* x, int64_t cols, uint8_t* by32, uint8_t* by16) {
    quantise_groups(x, cols, into_records<32>(by32), into_records<16>(by16));
}

}  // namespace strata::STRATA_ISA
