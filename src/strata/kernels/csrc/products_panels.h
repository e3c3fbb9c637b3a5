// Sixteen rows of one weight with some rows of the input: panels of four rows are decoded into the first-level cache
// and meet the input rows there.
#pragma once

#include "products_rows.h"
#include "products_tile.h"

namespace strata::STRATA_ISA {

constexpr int64_t band_rows = 16;   // weight rows of one result: 64 bytes per input row
constexpr int64_t most_inputs = 128;
constexpr int64_t input_bytes = 384 * 1024;  // input rows that stay in a second-level cache of 1 MB meanwhile
constexpr int64_t panels_bytes = 20 * 1024;  // decoded panels that meet a pair of input rows in the first-level cache

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

// Scratch bytes that a band needs: a panel of floats, or panels of codes.
static inline size_t panel_bytes(int64_t cols) {
    const int64_t coded = (groups_of(cols, 16) + 2) * panel_group_bytes<16>, floats = panel_rows * cols * 4;
    return static_cast<size_t>((coded > floats ? coded : floats) + panels_bytes);
}

static inline int64_t row_bytes_of(const WeightView& weight) {
    const Format& format = formats[weight.format];
    return weight.cols / format.block * format.bytes;
}

// Weights to fetch into the second-level cache while those before them are multiplied.
struct Ahead {
    const uint8_t* at;
    const uint8_t* end;
    int64_t step = 0;
    void share(int64_t tiles) {
        if (end > at) step = ((end - at) / tiles + 63) / 64 * 64;
    }
    // What one tile fetches.
    void go() {
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

// Panels that share the first-level cache with a pair of input rows, which then serves them all: 1, 2 or 4.
template <int sub>
static inline int64_t panels_at_once(int64_t groups) {
    const int64_t fit = panels_bytes / (groups * panel_group_bytes<sub>);
    return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

template <int sub, bool minima>
static inline void coded_panels(const uint8_t* panels, int64_t count, int offset, const Records& x, int64_t cols,
                                const Some& some, float* out, Ahead& ahead) {
    for (int64_t i = some.from; i < some.to; i += 2, out += 2 * band_rows) {
        const bool pair = i + 1 < some.to;
        const uint8_t* both[2] = {x.at(some.row(i)), pair ? x.at(some.row(i + 1)) : nullptr};
        const uint8_t* panel = panels;
        for (int64_t p = 0; p < count; ++p, panel += x.groups * panel_group_bytes<sub>) {
            if (pair) tile<sub, minima, 2>(panel, offset, both, cols, out + panel_rows * p);
            else tile<sub, minima, 1>(panel, offset, both, cols, out + panel_rows * p);
            ahead.go();
        }
    }
}

// A band of a weight that holds codes.
template <int sub, bool minima>
static inline void coded_band(const WeightView& weight, int64_t first, int64_t last, const Rows& in, const Some& some,
                              Ahead ahead, uint8_t* scratch, float* out) {
    const Records& x = sub == 16 ? in.by16 : in.by32;
    const int64_t at_once = panels_at_once<sub>(x.groups), end = first + band_rows < last ? first + band_rows : last;
    ahead.share((end - first + panel_rows - 1) / panel_rows * ((some.count() + 1) / 2));
    for (int64_t row = first; row < end; row += at_once * panel_rows) {
        const int64_t left = (end - row + panel_rows - 1) / panel_rows, count = left < at_once ? left : at_once;
        for (int64_t p = 0; p < count; ++p)
            decode_panel<sub>(weight, row + p * panel_rows, scratch + p * x.groups * panel_group_bytes<sub>);
        const int offset = formats[weight.format].offset;
        coded_panels<sub, minima>(scratch, count, offset, x, in.cols, some, out + row - first, ahead);
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
    if (format.sub == 0) {
        for (int64_t row = first; row < first + band_rows && row < last; row += panel_rows)
            float_panel(weight, row, in, some, reinterpret_cast<float*>(scratch), out + row - first);
    } else if (format.sub == 32) {
        if (format.minima) coded_band<32, true>(weight, first, last, in, some, ahead, scratch, out);
        else coded_band<32, false>(weight, first, last, in, some, ahead, scratch, out);
    } else {
        if (format.minima) coded_band<16, true>(weight, first, last, in, some, ahead, scratch, out);
        else coded_band<16, false>(weight, first, last, in, some, ahead, scratch, out);
    }
    if (weight.scale != 1.0f)
        for (int64_t i = 0; i < band_rows * some.count(); ++i) out[i] *= weight.scale;
}

}  // namespace strata::STRATA_ISA
