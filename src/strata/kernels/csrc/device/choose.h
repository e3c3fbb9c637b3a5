// Tokens from logits: the largest, or a draw from integer weights; tokens as sampling/sample.py and choose/naive.py.
//
// Several blocks look for each row's largest logit; one block then does the rest of the row. Weights are integers, so
// sums are exact in any order; borders of top-k and top-p are found digit by digit of an order-keeping integer key.
#pragma once

#include "small.h"

namespace strata::STRATA_ISA {

constexpr int kChooseThreads = 1024;
constexpr int kDigits = 2048;
constexpr int kParts = 4;        // of a weight's sum in a bin, 13 bits each: 2^19 weights' parts stay below 2^32
constexpr int kPartBits = 13;

// Likelier is the larger value, then the lower id.
struct Candidate {
    float value;
    int32_t id;
};

STRATA_INLINE bool likelier(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

constexpr int32_t kNoId = 0x7fffffff;

STRATA_INLINE Candidate likeliest_of_lanes(Candidate best) {
    for (int mask = 16; mask > 0; mask >>= 1) {
        const Candidate other = {shuffle_xor(best.value, mask), shuffle_xor(best.id, mask)};
        if (other.value != other.value || likelier(other, best)) best = other;
    }
    return best;
}

// The likeliest of the block in thread 0; a candidate that is not a number wins. Both arrays hold a place per 32.
STRATA_INLINE Candidate likeliest_of_block(Candidate best, float* values, int32_t* ids) {
    best = likeliest_of_lanes(best);
    if (lane() == 0) {
        values[warp()] = best.value;
        ids[warp()] = best.id;
    }
    barrier();
    if (warp() > 0) return best;
    const bool is = lane() < block_size() / 32;
    return likeliest_of_lanes({is ? values[lane()] : -infinity(), is ? ids[lane()] : kNoId});
}

// logits [rows, count] -> values, ids [rows, pieces]: the likeliest token of each piece. Grid: x pieces, y rows.
STRATA_KERNEL(choose_largest, (const float* logits, float* values, int32_t* ids, int64_t count, int64_t each)) {
    in_turn();
    SHARED(float, best_values, 32);
    SHARED(int32_t, best_ids, 32);
    const float* row = logits + block_y() * count;
    const int64_t begin = block_x() * each, end = begin + each < count ? begin + each : count;
    Candidate best = {-infinity(), kNoId};
    constexpr int batch = 8;  // asked for at once
    for (int64_t from = begin + thread_x(); from < end; from += batch * block_size()) {
        float held[batch];
        UNROLL
        for (int k = 0; k < batch; ++k) held[k] = from + k * block_size() < end ? row[from + k * block_size()] : -infinity();
        UNROLL
        for (int k = 0; k < batch; ++k) {
            const Candidate here = {held[k], static_cast<int32_t>(from + k * block_size())};
            if (from + k * block_size() < end && (here.value != here.value || likelier(here, best))) best = here;
        }
    }
    best = likeliest_of_block(best, best_values, best_ids);
    if (thread_x() > 0) return;
    values[block_y() * grid_x() + block_x()] = best.value;
    ids[block_y() * grid_x() + block_x()] = best.id;
}

// Larger values have larger keys; -0 counts as +0.
STRATA_INLINE uint32_t key_of(float value) {
    const uint32_t bits = bits_of_float(value + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Tokens as likely as this one, or likelier.
struct TokenBorder {
    uint32_t key;
    int32_t id;
};

STRATA_INLINE bool keeps(const TokenBorder& border, uint32_t key, int64_t id) {
    return key > border.key || (key == border.key && id <= border.id);
}

// use(i, values[i]) for every i, some reads ahead of their use.
template <class Use>
STRATA_INLINE void each_value(const float* values, int64_t count, const Use& use) {
    constexpr int at_once = 8;
    int64_t i = thread_x();
    KEEP_ROLLED
    for (; i + (at_once - 1) * kChooseThreads < count; i += at_once * kChooseThreads) {
        float v[at_once];
        UNROLL
        for (int k = 0; k < at_once; ++k) v[k] = values[i + k * kChooseThreads];
        UNROLL
        for (int k = 0; k < at_once; ++k) use(i + k * kChooseThreads, v[k]);
    }
    KEEP_ROLLED
    for (; i < count; i += kChooseThreads) use(i, values[i]);
}

// What a row's block shares.
struct ChooseMemory {
    int32_t* bins;  // [kDigits][kParts]
    int64_t* sums;  // [33]
    int64_t* found; // [4]
};

STRATA_INLINE int64_t in_bin(const int32_t* bins, int bin) {
    int64_t sum = 0;
    for (int part = 0; part < kParts; ++part)
        sum += static_cast<int64_t>(static_cast<uint32_t>(bins[bin * kParts + part])) << part * kPartBits;
    return sum;
}

STRATA_INLINE void add_to_bin(int32_t* bins, int bin, int64_t amount) {
    for (int part = 0; part < kParts; ++part) {
        const auto bits = static_cast<int32_t>(amount >> part * kPartBits & ((1 << kPartBits) - 1));
        if (bits) atomic_add(bins + bin * kParts + part, bits);
    }
}

STRATA_INLINE int64_t from_lane(int64_t v, int source) {
    const int32_t low = shuffle(static_cast<int32_t>(v), source), high = shuffle(static_cast<int32_t>(v >> 32), source);
    return static_cast<int64_t>(high) << 32 | static_cast<uint32_t>(low);
}

// What the threads before this one have, all together. `sums`: a place per 32 threads, which may be used again after
// the next barrier.
STRATA_INLINE int64_t before_me(int64_t mine, int64_t* sums) {
    int64_t run = mine;
    for (int step = 1; step < 32; step *= 2) {
        const int64_t other = from_lane(run, (lane() - step) & 31);
        if (lane() >= step) run += other;
    }
    if (lane() == 31) sums[warp()] = run;
    barrier();
    for (int w = 0; w < warp(); ++w) run += sums[w];
    return run - mine;
}

// From the top bin down: the bin where the run reaches `wanted` (0 when it never does), and the run above it, in
// memory.found after the next barrier. Thread t has bins 2 t and 2 t + 1 from the top.
STRATA_INLINE void find_bin(const ChooseMemory& memory, int bins, int64_t run, int64_t wanted) {
    const int top = bins - 1 - 2 * thread_x();
    const int64_t first = top > 0 ? in_bin(memory.bins, top) : 0, second = top > 0 ? in_bin(memory.bins, top - 1) : 0;
    run += before_me(first + second, memory.sums);
    if (top <= 0) return;
    if (run < wanted && (run + first >= wanted)) {
        memory.found[0] = top;
        memory.found[1] = run;
    } else if (run + first < wanted && (run + first + second >= wanted || top == 1)) {
        memory.found[0] = top - 1;
        memory.found[1] = run + first;
    }
}

// The least likely token of the shortest run of likeliest tokens whose amounts reach `wanted`: each token's amount is
// its weight, or 1 without weights. Every thread gets it.
STRATA_INLINE TokenBorder find_border(const float* values, const int64_t* weights, int64_t count, int64_t wanted,
                                      const ChooseMemory& memory) {
    uint32_t prefix = 0, mask = 0;
    int64_t run = 0;
    constexpr int kShifts[] = {21, 10, 0};
    for (int pass = 0; pass < 3; ++pass) {
        const int shift = kShifts[pass], bins = shift ? kDigits : kDigits / 2;
        for (int i = thread_x(); i < kDigits * kParts; i += kChooseThreads) memory.bins[i] = 0;
        barrier();
        each_value(values, count, [&](int64_t i, float value) {
            const uint32_t key = key_of(value);
            if ((key & mask) != prefix) return;
            add_to_bin(memory.bins, static_cast<int>(key >> shift & static_cast<uint32_t>(bins - 1)), weights ? weights[i] : 1);
        });
        barrier();
        find_bin(memory, bins, run, wanted);
        barrier();
        prefix |= static_cast<uint32_t>(memory.found[0]) << shift;
        mask |= static_cast<uint32_t>(bins - 1) << shift;
        run = memory.found[1];
        barrier();  // `found` is read
    }
    // Among tokens of this very key the lower ids come first.
    const int64_t each = (count + kChooseThreads - 1) / kChooseThreads, begin = each * thread_x();
    const int64_t end = begin + each < count ? begin + each : count;
    int64_t mine = 0;
    for (int64_t i = begin; i < end; ++i)
        if (key_of(values[i]) == prefix) mine += weights ? weights[i] : 1;
    if (thread_x() == 0) memory.found[2] = count;
    int64_t before = run + before_me(mine, memory.sums);
    if (before < wanted && before + mine >= wanted)
        for (int64_t i = begin; i < end; ++i) {
            if (key_of(values[i]) != prefix) continue;
            before += weights ? weights[i] : 1;
            if (before < wanted) continue;
            memory.found[2] = i;
            break;
        }
    barrier();
    const TokenBorder border = {prefix, static_cast<int32_t>(memory.found[2])};
    barrier();  // `found` and `sums` are read
    return border;
}

// How a row is chosen from; one struct of arrays for all rows, at fixed addresses (kernels/choose/gpu.py).
struct Wish {
    float temperature;
    int32_t top_k;
    double top_p, min_p, uniform;
};

constexpr double kLargestWeight = 17592186044416.0;  // 2^44

STRATA_INLINE int64_t sum_of_block(int64_t mine, int64_t* sums) {
    const int64_t before = before_me(mine, sums);
    if (thread_x() == kChooseThreads - 1) sums[32] = before + mine;
    barrier();
    const int64_t all = sums[32];
    barrier();
    return all;
}

// weights of the tokens that `border` keeps, 0 for others; their sum.
STRATA_INLINE int64_t weigh(const float* values, int64_t count, float largest, float temperature,
                            const TokenBorder& border, int64_t* weights, int64_t* sums) {
    int64_t mine = 0;
    each_value(values, count, [&](int64_t i, float value) {
        const float e = shared_exp((value - largest) / temperature);
        const int64_t weight = keeps(border, key_of(value), i) ? static_cast<int64_t>(e * 17592186044416.0f) : 0;
        weights[i] = weight;
        mine += weight;
    });
    return sum_of_block(mine, sums);
}

// Sets weights beyond the border or below `least` to 0; the sum of what is left.
STRATA_INLINE int64_t narrow(const float* values, int64_t count, const TokenBorder& border, double least,
                             int64_t* weights, int64_t* sums) {
    int64_t mine = 0;
    each_value(values, count, [&](int64_t i, float value) {
        int64_t weight = weights[i];
        if (!keeps(border, key_of(value), i) || static_cast<double>(weight) < least) weights[i] = weight = 0;
        mine += weight;
    });
    return sum_of_block(mine, sums);
}

// The first token whose running sum exceeds `mark`, written by the thread that finds it.
STRATA_INLINE void find_mark(const int64_t* weights, int64_t count, int64_t mark, int64_t* sums, int32_t* token) {
    const int64_t each = (count + kChooseThreads - 1) / kChooseThreads, begin = each * thread_x();
    const int64_t end = begin + each < count ? begin + each : count;
    int64_t mine = 0;
    for (int64_t i = begin; i < end; ++i) mine += weights[i];
    int64_t run = before_me(mine, sums);
    if (run > mark || run + mine <= mark) return;
    int64_t i = begin;
    while ((run += weights[i]) <= mark) ++i;
    *token = static_cast<int32_t>(i);
}

STRATA_INLINE void draw(const float* values, int64_t count, float largest, const Wish& wish, int64_t* weights,
                        const ChooseMemory& memory, int32_t* token) {
    TokenBorder border = {0, kNoId};
    if (0 < wish.top_k && wish.top_k < count) border = find_border(values, nullptr, count, wish.top_k, memory);
    int64_t whole = weigh(values, count, largest, wish.temperature, border, weights, memory.sums);
    if (wish.top_p < 1.0) {
        const auto wanted = static_cast<int64_t>(ceil(wish.top_p * static_cast<double>(whole)));
        border = find_border(values, weights, count, wanted < 1 ? 1 : wanted, memory);
    }
    if (wish.top_p < 1.0 || wish.min_p > 0.0)
        whole = narrow(values, count, border, wish.min_p * kLargestWeight, weights, memory.sums);
    auto mark = static_cast<int64_t>(wish.uniform * static_cast<double>(whole));
    mark = mark < whole - 1 ? mark : whole - 1;
    find_mark(weights, count, mark, memory.sums, token);
}

// logits [rows, count] and choose_largest's results -> tokens [rows]; -1 where a logit is NaN or +infinity or none is
// finite. weights [rows, count] is scratch, unused when every temperature is 0. Grid: x rows.
STRATA_KERNEL_OF(kChooseThreads, choose_tokens,
                 (const float* logits, const float* best_values, const int32_t* best_ids, const float* temperature,
                  const int32_t* top_k, const double* top_p, const double* min_p, const double* uniform,
                  int64_t* weights, int32_t* tokens, int64_t count, int64_t pieces)) {
    in_turn();
    SHARED(int32_t, bins, kDigits * kParts);
    SHARED(int64_t, sums, 33);
    SHARED(int64_t, found, 4);
    const int64_t row = block_x();
    Candidate best = {best_values[row * pieces], best_ids[row * pieces]};
    for (int64_t i = 1; i < pieces; ++i) {
        const Candidate other = {best_values[row * pieces + i], best_ids[row * pieces + i]};
        if (other.value != other.value || likelier(other, best)) best = other;
    }
    const bool finite = best.value > -infinity() && best.value < infinity();
    const Wish wish = {temperature[row], top_k[row], top_p[row], min_p[row], uniform[row]};
    if (!finite || !(wish.temperature > 0.0f)) {
        if (thread_x() == 0) tokens[row] = finite ? best.id : -1;
        return;
    }
    draw(logits + row * count, count, best.value, wish, weights + row * count, {bins, sums, found}, tokens + row);
}

}  // namespace strata::STRATA_ISA
