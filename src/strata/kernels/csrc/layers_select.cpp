#include "layers_select.h"

#include "layers_dots.h"

namespace strata::STRATA_ISA {
namespace {

// Scores of the blocks j0 .. j1 (multiples of W) of one row.
void score_blocks(const SelectCall& call, int64_t t, int64_t j0, int64_t j1, int64_t n, float* scores) {
    const int32_t* table = call.keys.table + call.slot[t] * call.keys.pages_per_slot;
    for (int64_t j = j0; j < j1 && j < n; j += W) {
        int64_t offset[W];
        for (int64_t i = 0; i < W; ++i) {
            const int64_t entry = j + i < n ? j + i : j;
            offset[i] = (table[entry / call.keys.page] * call.keys.page + entry % call.keys.page) * call.keys.dim;
        }
        V total = vzero();
        int64_t h = 0;
        // vmax gives its second operand unless the first is larger: NaN stays.
        for (; h + kQueries <= call.heads; h += kQueries) {
            const float* q = call.q + (t * call.heads + h) * call.dim;
            const float* queries[kQueries] = {q, q + call.dim, q + 2 * call.dim};
            V dots[kQueries];
            key_dots<kQueries>(queries, call.keys.floats(), offset, call.dim, dots, [] {});
            for (int i = 0; i < kQueries; ++i) total = vadd(total, vmax(vzero(), dots[i]));
        }
        for (; h < call.heads; ++h) {
            const float* q = call.q + (t * call.heads + h) * call.dim;
            V dots[1];
            key_dots<1>(&q, call.keys.floats(), offset, call.dim, dots, [] {});
            total = vadd(total, vmax(vzero(), dots[0]));
        }
        vstore(scores + j, total);
    }
}

// A score's place in the ranking: scores are +0 or above, so their bits order them; NaN is above all.
STRATA_INLINE uint32_t rank_key(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return score != score ? UINT32_MAX : bits;
}

// Key of the `keep`-th best of n scores (1 <= keep <= n); how many of the scores with that key do not fit.
uint32_t rank_threshold(const float* scores, int64_t n, int64_t keep, uint32_t* counts, int64_t* surplus) {
    uint32_t prefix = 0, mask = 0;
    int64_t above = 0;
    constexpr int kShifts[] = {21, 10, 0};
    for (int shift : kShifts) {
        const uint32_t digits = shift == 0 ? 1024 : 2048;
        memset(counts, 0, digits * sizeof *counts);
        for (int64_t j = 0; j < n; ++j) {
            const uint32_t key = rank_key(scores[j]);
            if ((key & mask) == prefix) ++counts[key >> shift & (digits - 1)];
        }
        uint32_t digit = digits - 1;
        while (above + counts[digit] < keep) above += counts[digit--];
        prefix |= digit << shift;
        mask |= (digits - 1) << shift;
    }
    *surplus = above + counts[prefix & 1023] - keep;  // the last digit's counts: scores with this very key
    return prefix;
}

void choose_blocks(const SelectCall& call, int64_t t, int64_t n, const float* scores, uint32_t* counts) {
    const int64_t width = (call.budget + 1) * call.ratio, keep = call.budget < n ? call.budget : n;
    int32_t* out = call.positions + t * width;
    int64_t used = 0, surplus = 0;  // scores at the threshold beyond the budget: the first ones are left out
    const uint32_t threshold = keep && keep < n ? rank_threshold(scores, n, keep, counts, &surplus) : 0;
    for (int64_t j = 0; j < n && keep; ++j) {
        const uint32_t key = rank_key(scores[j]);
        if (key < threshold || (key == threshold && surplus-- > 0)) continue;
        for (int64_t i = 0; i < call.ratio; ++i) out[used++] = static_cast<int32_t>(j * call.ratio + i);
    }
    for (int64_t p = n * call.ratio; p <= call.position[t]; ++p) out[used++] = static_cast<int32_t>(p);
    call.count[t] = static_cast<int32_t>(used);
    while (used < width) out[used++] = -1;
}

void select(Pool& pool, const SelectCall& call, int64_t stride, float* scratch) {
    const int64_t area = stride + kSelectCounts, vectors = stride / W;
    const int wanted = static_cast<int>(4 * pool.threads() / call.rows + 1);
    const bool tiny = pool.threads() == 1 || call.rows * call.heads * call.dim * stride < 65536;
    const int parts = tiny ? 1 : static_cast<int>(vectors < wanted ? vectors : wanted);
    const int rows = static_cast<int>(call.rows);
    auto seen = [&](int64_t t) { return (call.position[t] + 1) / call.ratio; };
    auto score = [&](int chunk, int) {
        const int64_t t = chunk / parts;
        score_blocks(call, t, chunk_begin(vectors, parts, chunk % parts) * W,
                     chunk_begin(vectors, parts, chunk % parts + 1) * W, seen(t), scratch + t * area);
    };
    auto choose = [&](int t, int) {
        choose_blocks(call, t, seen(t), scratch + t * area, reinterpret_cast<uint32_t*>(scratch + t * area + stride));
    };
    if (tiny) {
        for (int t = 0; t < rows; ++t) {
            score(t, 0);
            choose(t, 0);
        }
        return;
    }
    pool.parallel_for(rows * parts, score);
    pool.parallel_for(rows, choose);
}

}  // namespace

extern const SelectKernels select_kernels = {select};

}  // namespace strata::STRATA_ISA
