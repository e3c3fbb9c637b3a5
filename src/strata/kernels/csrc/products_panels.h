// Sixteen rows of one weight with some rows of the input: panels of four rows are decoded into the first-level cache
// and meet the input rows there.
#pragma once

#include "products_rows.h"
#include "products_tile.h"

namespace strata::STRATA_ISA {

constexpr int64_t band_rows = 16;   // weight rows of one result: 64 bytes per input row
constexpr int64_t most_inputs = 128;
constexpr int64_t input_bytes = 384 * 1024;  // input rows that stay in a second-level cache of 1 MB meanwhile

// Rows of the input: as floats, and as records in the layouts that the weights read.
struct Rows {
    const float* x;  // [rows, cols]
    int64_t rows, cols;
    Records by32, by16;
};

// The input rows from .. to - 1 of a list, or of the input itself.
struct Some {
    const int32_t* list;
    int64_t from, to;
    int64_t row(int64_t i) const { return list ? list[i] : i; }
    int64_t count() const { return to - from; }
};

// Input rows per block.
static inline int64_t input_block(const Rows& in) {
    const int64_t fit = input_bytes / (2 * in.cols) / 2 * 2;
    return fit < 2 ? 2 : fit < most_inputs ? fit : most_inputs;
}

// Scratch bytes that a band needs: a panel of codes or of floats.
static inline size_t panel_bytes(int64_t cols) {
    const int64_t coded = (groups_of(cols, 16) + 2) * panel_group_bytes<16>, floats = panel_rows * cols * 4;
    return static_cast<size_t>(coded > floats ? coded : floats) + 64;
}

static inline int64_t row_bytes_of(const WeightView& weight) {
    const Format& format = formats[weight.format];
    return weight.cols / format.block * format.bytes;
}

// Weights to fetch into the second-level cache while those before them are multiplied.
struct Ahead {
    const uint8_t* at;
    const uint8_t* end;
    // A share of the lines: one of `tiles`.
    void go(int64_t step) {
        const uint8_t* to = at + step < end ? at + step : end;
        for (; at < to; at += 64) __builtin_prefetch(at, 0, 2);
    }
};

// The band of rows from `first` on, up to `last`.
static inline Ahead band_ahead(const WeightView& weight, int64_t first, int64_t last) {
    const int64_t row_bytes = row_bytes_of(weight), after = first + band_rows < last ? first + band_rows : last;
    return {weight.data + first * row_bytes, weight.data + (after > first ? after : first) * row_bytes};
}

// Rows `row` .. `row` + 3 of a weight that holds codes; where it has fewer, the last one again.
template <int sub>
static inline void decode_panel(const WeightView& weight, int64_t row, uint8_t* panel) {
    const Format& format = formats[weight.format];
    const int64_t row_bytes = row_bytes_of(weight), group_bytes = 16 * sub / format.block * format.bytes;
    for (int r = 0; r < panel_rows; ++r) {
        const int64_t from = row + r < weight.rows ? row + r : weight.rows - 1;
        WeightView group = weight;
        group.data += from * row_bytes;
        if (weight.scales) group.scales += from * (weight.cols / 16);
        uint8_t* to = panel;
        for (int64_t col = 0; col < weight.cols; col += 16 * sub, to += panel_group_bytes<sub>) {
            group.cols = weight.cols - col < 16 * sub ? weight.cols - col : 16 * sub;
            float* scales = reinterpret_cast<float*>(to + panel_rows * 16 * sub) + 16 * r;
            format.codes(group, 0, to + r * 16 * sub, scales, scales + 64);
            group.data += group_bytes;
            if (weight.scales) group.scales += 16;
        }
    }
}

template <int sub, bool minima>
static inline void coded_panel(const uint8_t* panel, int offset, const Records& x, int64_t cols, const Some& some,
                               float* out, Ahead& ahead) {
    const int64_t tiles = band_rows / panel_rows * ((some.count() + 1) / 2), left = ahead.end - ahead.at;
    const int64_t step = left > 0 ? (left / tiles + 64) / 64 * 64 : 0;
    for (int64_t i = some.from; i < some.to; i += 2, out += 2 * band_rows) {
        const bool pair = i + 1 < some.to;
        const uint8_t* both[2] = {x.at(some.row(i)), pair ? x.at(some.row(i + 1)) : nullptr};
        if (pair) tile<sub, minima, 2>(panel, offset, both, cols, out);
        else tile<sub, minima, 1>(panel, offset, both, cols, out);
        ahead.go(step);
    }
}

static inline void float_panel(const WeightView& weight, int64_t row, const Rows& in, const Some& some, float* scratch,
                               float* out) {
    const float* values[panel_rows];
    for (int r = 0; r < panel_rows; ++r) {
        const int64_t from = row + r < weight.rows ? row + r : weight.rows - 1;
        if (weight.format == 0 && reinterpret_cast<uintptr_t>(weight.data) % 4 == 0) {  // F32 as it lies
            values[r] = reinterpret_cast<const float*>(weight.data) + from * in.cols;
        } else {
            formats[weight.format].floats(weight, from, scratch + r * in.cols);
            values[r] = scratch + r * in.cols;
        }
    }
    for (int64_t i = some.from; i < some.to; i += 2, out += 2 * band_rows) {
        const bool pair = i + 1 < some.to;
        const float* first = in.x + some.row(i) * in.cols;
        const float* x[2] = {first, pair ? in.x + some.row(i + 1) * in.cols : first};
        float y[2 * panel_rows];
        dot_floats<panel_rows, 2>(values, x, in.cols, y);
        for (int r = 0; r < panel_rows; ++r) {
            out[r] = y[2 * r];
            if (pair) out[band_rows + r] = y[2 * r + 1];
        }
    }
}

// out[16 * i + r]: weight row `first` + r with the i-th of the input rows, for 16 rows, of which those from `last` on
// are of no account. Meanwhile what lies `ahead` is fetched.
static inline void band(const WeightView& weight, int64_t first, int64_t last, const Rows& in, const Some& some,
                        Ahead ahead, uint8_t* scratch, float* out) {
    const Format& format = formats[weight.format];
    const Records& x = format.sub == 16 ? in.by16 : in.by32;
    for (int64_t row = first; row < first + band_rows && row < last; row += panel_rows) {
        float* to = out + row - first;
        if (format.sub == 0) {
            float_panel(weight, row, in, some, reinterpret_cast<float*>(scratch), to);
        } else if (format.sub == 32) {
            decode_panel<32>(weight, row, scratch);
            if (format.minima) coded_panel<32, true>(scratch, format.offset, x, in.cols, some, to, ahead);
            else coded_panel<32, false>(scratch, format.offset, x, in.cols, some, to, ahead);
        } else {
            decode_panel<16>(weight, row, scratch);
            if (format.minima) coded_panel<16, true>(scratch, format.offset, x, in.cols, some, to, ahead);
            else coded_panel<16, false>(scratch, format.offset, x, in.cols, some, to, ahead);
        }
    }
    if (weight.scale != 1.0f)
        for (int64_t i = 0; i < band_rows * some.count(); ++i) out[i] *= weight.scale;
}

}  // namespace strata::STRATA_ISA
