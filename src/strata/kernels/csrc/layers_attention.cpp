#include "layers_attention.h"

#include "layers_simd.h"
// After layers_simd.h, whose STRATA_INLINE it uses.
#include "activation.h"

namespace strata::STRATA_ISA {
namespace {

constexpr int64_t kTile = 32;     // entries whose values stay in the first cache while all rows and heads use them
constexpr int64_t kColumns = 64;  // value dims that one thread takes when a head is split
constexpr int kKeys = kParts == 2 ? 4 : 2;  // keys per pass over a query: as many as the registers hold

// Dots of q with W keys at base + offset[i].
STRATA_INLINE V key_dots(const float* q, const float* base, const int64_t* offset, int64_t dim) {
    if (dim % kLanes) {
        float dots[W];
        for (int i = 0; i < W; ++i) dots[i] = lane_dot(q, base + offset[i], dim);
        return vload(dots);
    }
    V folded[W];
    for (int i = 0; i < W; i += kKeys) {
        Lanes lanes[kKeys];
        for (int k = 0; k < kKeys; ++k) lanes[k] = lanes_zero();
        for (int64_t c = 0; c < dim; c += kLanes)
            for (int p = 0; p < kParts; ++p) {
                const V query = vload(q + c + p * W);
                for (int k = 0; k < kKeys; ++k)
                    lanes[k].part[p] = vfma(query, vload(base + offset[i + k] + c + p * W), lanes[k].part[p]);
            }
        for (int k = 0; k < kKeys; ++k) folded[fold_slot(i + k)] = lanes_fold(lanes[k]);
    }
    return fold_totals(folded);
}

// Where the entries of a slot lie; places n .. stride repeat the first, so that whole vectors of them can be read.
void fill_offsets(const Plane& plane, int32_t slot, const int32_t* listed, int64_t n, int64_t stride, int64_t* offset) {
    const int32_t* table = plane.table + slot * plane.pages_per_slot;
    for (int64_t j = 0; j < n; ++j) {
        const int64_t entry = listed ? listed[j] : j;
        offset[j] = (table[entry / plane.page] * plane.page + entry % plane.page) * plane.width;
    }
    for (int64_t j = n; j < stride; ++j) offset[j] = n ? offset[0] : 0;
}

// acc[c] = fma(e_j, value_j[c], acc[c]) for c0 <= c < c1 over n entries in order.
template <int N>
STRATA_INLINE int64_t add_values(float* acc, const float* e, const float* base, const int64_t* offset, int64_t n,
                                 int64_t c, int64_t c1) {
    for (; c + N * W <= c1; c += N * W) {
        V sum[N];
        for (int i = 0; i < N; ++i) sum[i] = vload(acc + c + i * W);
        for (int64_t j = 0; j < n; ++j) {
            const V weight = vset(e[j]);
            const float* value = base + offset[j] + c;
            for (int i = 0; i < N; ++i) sum[i] = vfma(weight, vload(value + i * W), sum[i]);
        }
        for (int i = 0; i < N; ++i) vstore(acc + c + i * W, sum[i]);
    }
    return c;
}

void add_all_values(float* acc, const float* e, const float* base, const int64_t* offset, int64_t n, int64_t c0,
                    int64_t c1) {
    int64_t c = add_values<8>(acc, e, base, offset, n, c0, c1);
    c = add_values<4>(acc, e, base, offset, n, c, c1);
    c = add_values<1>(acc, e, base, offset, n, c, c1);
    for (; c < c1; ++c)
        for (int64_t j = 0; j < n; ++j) acc[c] = __builtin_fmaf(e[j], base[offset[j] + c], acc[c]);
}

// Consecutive rows of one slot, and the scratch they work in.
struct Block {
    const AttentionCall& call;
    int64_t first, num_rows, longest, stride, group;
    int64_t* key_offset;
    int64_t* value_offset;
    float* scores;  // [num_rows][heads held][stride]
    float* totals;  // [num_rows][heads held]
    int64_t heads_held;

    int64_t seen(int64_t row) const { return call.listed ? call.count[row] : call.position[row] + 1; }

    void prepare() {
        longest = 0;
        for (int64_t r = first; r < first + num_rows; ++r) longest = seen(r) > longest ? seen(r) : longest;
        const int32_t* listed = call.listed ? call.listed + first * call.list_width : nullptr;
        fill_offsets(call.keys, call.slot[first], listed, longest, stride, key_offset);
        fill_offsets(call.values, call.slot[first], listed, longest, stride, value_offset);
    }

    // Scaled scores of the entries j0 .. j1 (multiples of W) for one KV head; its scores start at `held`.
    void score(int64_t kv_head, int64_t held, int64_t j0, int64_t j1) const {
        const float* base = call.keys.data + kv_head * call.dim;
        const V scale = vset(call.scale);
        for (int64_t j = j0; j < j1; j += W)
            for (int64_t r = 0; r < num_rows; ++r) {
                if (j >= seen(first + r)) continue;
                const float* q = call.q + ((first + r) * call.heads + kv_head * group) * call.dim;
                float* s = scores + (r * heads_held + held) * stride + j;
                for (int64_t g = 0; g < group; ++g, q += call.dim, s += stride)
                    vstore(s, vmul(key_dots(q, base, key_offset + j, call.dim), scale));
            }
    }

    // Scores of one row and head -> e and their sum.
    void normalise(int64_t r, int64_t held) const {
        float* s = scores + (r * heads_held + held) * stride;
        const int64_t n = seen(first + r);
        const float top = largest(s, n);
        for (int64_t j = 0; j < n; ++j) s[j] = shared_exp(s[j] - top);
        totals[r * heads_held + held] = lane_sum(s, n);
    }

    // Output dims c0 .. c1 of one KV head's query heads.
    void sum(int64_t kv_head, int64_t held, int64_t c0, int64_t c1) const {
        const float* base = call.values.data + kv_head * call.dim;
        float* out = call.out + (first * call.heads + kv_head * group) * call.dim;
        for (int64_t r = 0; r < num_rows; ++r)
            for (int64_t g = 0; g < group; ++g)
                memset(out + (r * call.heads + g) * call.dim + c0, 0, static_cast<size_t>(c1 - c0) * sizeof(float));
        for (int64_t j = 0; j < longest; j += kTile)
            for (int64_t r = 0; r < num_rows; ++r) {
                const int64_t left = seen(first + r) - j;
                const int64_t n = left < kTile ? left : kTile;
                for (int64_t g = 0; g < group && n > 0; ++g)
                    add_all_values(out + (r * call.heads + g) * call.dim, scores + (r * heads_held + held + g) * stride + j,
                                   base, value_offset + j, n, c0, c1);
            }
        for (int64_t r = 0; r < num_rows; ++r)
            for (int64_t g = 0; g < group; ++g) {
                const float total = totals[r * heads_held + held + g];
                float* o = out + (r * call.heads + g) * call.dim;
                for (int64_t c = c0; c < c1; ++c) o[c] = o[c] / total;
            }
    }
};

// Carves a block's scratch from `area`: two offset lists, scores, totals.
Block make_block(const AttentionCall& call, const AttentionPlan& plan, int64_t first, int64_t num_rows, float* area,
                 int64_t heads_held) {
    auto* offsets = reinterpret_cast<int64_t*>(area);
    float* scores = area + 4 * plan.stride;
    return {call,    first,  num_rows, 0, plan.stride, call.heads / call.kv_heads, offsets, offsets + plan.stride,
            scores, scores + plan.rows_per_block * heads_held * plan.stride, heads_held};
}

// Cuts the rows into blocks: starts[0 .. returned], the last being the number of rows.
int64_t cut_rows(const AttentionCall& call, int64_t rows_per_block, int32_t* starts) {
    int64_t blocks = 0;
    for (int64_t t = 0; t < call.rows; ++t) {
        const bool same = t && call.slot[t] == call.slot[t - 1] && t - starts[blocks - 1] < rows_per_block;
        if (!same) starts[blocks++] = static_cast<int32_t>(t);
    }
    starts[blocks] = static_cast<int32_t>(call.rows);
    return blocks;
}

// Few rows, long cache: scores shared out by entries, softmax by heads, sums by value dims.
void attend_split(Pool& pool, const AttentionCall& call, const AttentionPlan& plan, const int32_t* starts, int blocks,
                  float* areas) {
    const int64_t area = area_floats(plan, call.heads);
    const int kv_heads = static_cast<int>(call.kv_heads), heads = static_cast<int>(call.heads);
    auto block = [&](int b, bool prepare) {
        Block made = make_block(call, plan, starts[b], starts[b + 1] - starts[b], areas + b * area, call.heads);
        if (prepare) made.prepare();
        for (int64_t r = made.first; r < made.first + made.num_rows && !prepare; ++r)
            made.longest = made.seen(r) > made.longest ? made.seen(r) : made.longest;
        return made;
    };
    auto prepare = [&](int b, int) { block(b, true); };
    pool.parallel_for(blocks, prepare);
    const int64_t vectors = plan.stride / W;
    const int wanted = (4 * pool.threads() + blocks * kv_heads - 1) / (blocks * kv_heads);
    const int parts = static_cast<int>(vectors < wanted ? vectors : wanted);
    auto score = [&](int chunk, int) {
        const int unit = chunk / parts, part = chunk % parts;
        block(unit / kv_heads, false)
            .score(unit % kv_heads, unit % kv_heads * (call.heads / call.kv_heads), chunk_begin(vectors, parts, part) * W,
                   chunk_begin(vectors, parts, part + 1) * W);
    };
    pool.parallel_for(blocks * kv_heads * parts, score);
    auto normalise = [&](int chunk, int) {
        const Block here = block(chunk / heads, false);
        for (int64_t r = 0; r < here.num_rows; ++r) here.normalise(r, chunk % heads);
    };
    pool.parallel_for(blocks * heads, normalise);
    const int slices = static_cast<int>((call.dim + kColumns - 1) / kColumns);
    auto sum = [&](int chunk, int) {
        const int unit = chunk / slices;
        const int64_t c0 = chunk % slices * kColumns, end = c0 + kColumns;
        block(unit / kv_heads, false)
            .sum(unit % kv_heads, unit % kv_heads * (call.heads / call.kv_heads), c0, end < call.dim ? end : call.dim);
    };
    pool.parallel_for(blocks * kv_heads * slices, sum);
}

void attend(Pool& pool, const AttentionCall& call, const AttentionPlan& plan, float* scratch) {
    auto* starts = reinterpret_cast<int32_t*>(scratch);
    const int blocks = static_cast<int>(cut_rows(call, plan.rows_per_block, starts));
    float* areas = scratch + starts_floats(call.rows);
    if (plan.split) return attend_split(pool, call, plan, starts, blocks, areas);
    const int64_t group = call.heads / call.kv_heads, area = area_floats(plan, group);
    const int64_t units = blocks * call.kv_heads;
    const bool tiny = pool.threads() == 1 || call.rows * call.heads * call.dim * plan.stride < 65536;
    auto run = [&](int chunk, int worker) {
        // The last blocks of a prompt see the most: taken first, they leave no straggler.
        for (int64_t u = tiny ? 0 : units - 1 - chunk; u < (tiny ? units : units - chunk); ++u) {
            const int64_t b = u / call.kv_heads, kv_head = u % call.kv_heads;
            Block block = make_block(call, plan, starts[b], starts[b + 1] - starts[b], areas + worker * area, group);
            block.prepare();
            block.score(kv_head, 0, 0, (block.longest + W - 1) / W * W);
            for (int64_t r = 0; r < block.num_rows; ++r)
                for (int64_t g = 0; g < group; ++g) block.normalise(r, g);
            block.sum(kv_head, 0, 0, call.dim);
        }
    };
    pool.parallel_for(tiny ? 1 : static_cast<int>(units), run);
}

// Scores of the blocks j0 .. j1 (multiples of W) of one row.
void score_blocks(const SelectCall& call, int64_t t, int64_t j0, int64_t j1, int64_t n, float* scores) {
    const int32_t* table = call.keys.table + call.slot[t] * call.keys.pages_per_slot;
    for (int64_t j = j0; j < j1 && j < n; j += W) {
        int64_t offset[W];
        for (int64_t i = 0; i < W; ++i) {
            const int64_t entry = j + i < n ? j + i : j;
            offset[i] = (table[entry / call.keys.page] * call.keys.page + entry % call.keys.page) * call.keys.width;
        }
        V total = vzero();
        for (int64_t h = 0; h < call.heads; ++h) {
            const V dots = key_dots(call.q + (t * call.heads + h) * call.dim, call.keys.data, offset, call.dim);
            total = vadd(total, vmax(vzero(), dots));  // vmax gives its second operand unless the first is larger: NaN stays
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

extern const AttentionKernels attention_kernels = {attend, select};

}  // namespace strata::STRATA_ISA
