// The quantised products (docs/numerics.md): what the bindings hand to the compute variants.
//
// Group layout. The 32 lanes of the rule are two halves of 16; so codes are stored in groups of 16 sub-blocks of `sub`
// values (32 or 16), four values of each sub-block side by side:
//
//     codes[group][step 0 .. sub / 4 - 1][sub-block 0 .. 15][4]      scales, minima [group][16]
//
// Step j of all 16 sub-blocks is one 64-byte vector, so that integer dot instructions add up 16 sub-block sums with no
// shuffle at the end. Activations lie in the same layout; missing sub-blocks of the last group have q = 0 and d = 0,
// which leaves their lane as it is (a lane can never hold -0: numerics 4 starts at +0 and u is a multiple of 2^-149).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"
#include "memory.h"
#include "pool.h"

namespace strata {

// A matrix [rows, cols] in a format (an index into `formats`); see kernels/views.py.
struct WeightView {
    int format;
    int64_t rows, cols;
    const uint8_t* data;
    const uint8_t* scales;  // planes[1], or null
    float scale;
};

// Weight rows [first, last) with `n` input rows (index[i], or i without an index): out[i * stride + row - first].
struct FewRows {
    const WeightView& weight;
    int64_t first, last;
    const int8_t* q;  // activations in the weight's group layout: [rows][groups] of 16 sub-blocks
    const float* d;
    const int32_t* m;
    int64_t groups;
    const float* x;  // activations as they are, for plain floats
    const int32_t* index;
    int64_t n;
    float* out;
    int64_t stride;
    void* scratch;        // room for the q of n rows
    const uint8_t* next;  // what the same thread probably reads after these rows; null when nothing is known
};

struct Format {
    const char* name;
    int block, bytes;  // values and bytes per block
    int sub;           // values per scale; 0: plain floats
    int offset;        // codes = w_int + offset
    bool minima;
    // One row to group layout (sub > 0); null for floats.
    void (*codes)(const WeightView& weight, int64_t row, uint8_t* codes, float* scales, float* minima);
    // One row to float32, without weight.scale.
    void (*floats)(const WeightView& weight, int64_t row, float* values);
    // Some rows with few input rows (products_few.h); null where there is no faster form than codes or floats.
    void (*few)(const FewRows& job);
};

constexpr int format_count = 30;

// Threads and memory that a call may use.
struct Context {
    Pool& pool;
    Scratch& shared;
    Scratch* workers;
};

struct LinearJob {
    const float* x;  // [rows, cols]
    int64_t rows, cols;
    int count;
    const WeightView* weights;
    float* const* outputs;  // [rows, weights[i].rows] each
};

// pairs are the (row, rank) entries of ids, grouped by expert: expert i of `count` has pairs begin[i] .. begin[i + 1];
// pair p reads input row `row[p]`. The results are combined in `y`, or with `outputs` left apart.
struct ExpertsJob {
    const float* x;  // [rows, hidden]
    int64_t rows, hidden, width;
    int top_k, count;
    const WeightView* const* gate;  // [count]
    const WeightView* const* up;
    const WeightView* const* down;
    const int32_t* begin;
    const int32_t* row;
    const int32_t* place;   // [rows * top_k]: the pair that holds an entry, or -1 (with `outputs` only)
    const float* factors;   // [rows, top_k]
    float* y;               // [rows, hidden]
    float* outputs;         // [rows * top_k, hidden], or null
};

struct ProductKernels {
    void (*linear)(Context, const LinearJob&);
    void (*experts)(Context, const ExpertsJob&);
    void (*embed)(Context, const WeightView&, const int64_t* ids, int64_t count, float* y);
    const Format* formats;  // [format_count]
};
STRATA_VARIANTS(ProductKernels, product_kernels)

}  // namespace strata
