// Bindings of norms, rope, attention, convolution, the delta rule and the other layer operations.
//
// Sizes and dtypes are checked by the Python wrappers; what lies inside index arrays (slots, positions, page tables,
// segments) is checked here, before anything is written.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind.h"
#include "layers_attention.h"
#include "layers_norm.h"
#include "layers_recurrent.h"
#include "layers_small.h"
#include "native.h"

namespace nb = nanobind;

namespace strata {
namespace {

template <class T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// A paged plane as Python names it: (data, table, pages, page, slots, pages per slot, width).
struct PlaneArgs {
    Plane plane;
    int64_t pages, slots;

    [[noreturn]] static void refuse(int64_t slot, const std::string& what) {
        throw std::out_of_range("slot " + std::to_string(slot) + ": " + what);
    }

    void check_slot(int64_t slot) const {
        if (slot < 0 || slot >= slots) refuse(slot, "expected 0 .. " + std::to_string(slots - 1));
    }

    // The place of an entry's page in the table, checked.
    int32_t page_of(int64_t slot, int64_t entry) const {
        if (entry < 0 || entry >= plane.pages_per_slot * plane.page)
            refuse(slot, "entry " + std::to_string(entry) + " is beyond its page table of " +
                             std::to_string(plane.pages_per_slot * plane.page) + " entries");
        const int32_t page = plane.table[slot * plane.pages_per_slot + entry / plane.page];
        if (page < 0 || page >= pages)
            refuse(slot, "page " + std::to_string(page) + " in its table is outside 0 .. " + std::to_string(pages - 1));
        return page;
    }

    // Entries 0 .. n - 1 of a slot lie on pages.
    void check_first(int64_t slot, int64_t n) const {
        for (int64_t entry = 0; entry < n; entry += plane.page) page_of(slot, entry);
        if (n > 0) page_of(slot, n - 1);
    }
};

PlaneArgs plane_of(const nb::tuple& t) {
    return {{at<const float>(nb::cast<uintptr_t>(t[0])), at<const int32_t>(nb::cast<uintptr_t>(t[1])),
             nb::cast<int64_t>(t[3]), nb::cast<int64_t>(t[5]), nb::cast<int64_t>(t[6])},
            nb::cast<int64_t>(t[2]),
            nb::cast<int64_t>(t[4])};
}

// Every row's slot is there and its position is not negative; `seen(row)` gives the entries it reads.
template <class Seen>
int64_t check_rows(const PlaneArgs& plane, const int32_t* slot, const int32_t* position, int64_t rows, Seen seen) {
    int64_t longest = 0, run = 0;
    for (int64_t t = 0; t < rows; ++t) {
        plane.check_slot(slot[t]);
        if (position[t] < 0) PlaneArgs::refuse(slot[t], "position " + std::to_string(position[t]) + " is negative");
        run = t && slot[t] == slot[t - 1] ? std::max(run, seen(t)) : seen(t);
        if (t + 1 == rows || slot[t + 1] != slot[t]) plane.check_first(slot[t], run);
        longest = std::max(longest, run);
    }
    return longest;
}

// Segments follow each other from row 0 to the last, with a slot of its own each.
void check_segments(const int32_t* segments, int64_t count, int64_t rows, int64_t slots) {
    int64_t next = 0;
    std::vector<bool> used(slots, false);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = segments[3 * i], first = segments[3 * i + 1], length = segments[3 * i + 2];
        if (slot < 0 || slot >= slots)
            throw std::out_of_range("segment " + std::to_string(i) + ": slot " + std::to_string(slot) +
                                    " is outside 0 .. " + std::to_string(slots - 1));
        if (first != next || length < 1 || used[slot])
            throw std::invalid_argument("segment " + std::to_string(i) + " (slot " + std::to_string(slot) + ", rows " +
                                        std::to_string(first) + " + " + std::to_string(length) +
                                        ") does not follow row " + std::to_string(next) +
                                        " or names a slot a second time");
        used[slot] = true;
        next += length;
    }
    if (next != rows)
        throw std::invalid_argument("segments cover " + std::to_string(next) + " of " + std::to_string(rows) + " rows");
}

float* reserve(Native& native, int64_t floats) {
    return static_cast<float*>(native.shared_scratch().reserve(static_cast<size_t>(floats) * sizeof(float)));
}

int64_t count_blocks(const int32_t* slot, int64_t rows, int64_t rows_per_block) {
    int64_t blocks = 0, held = 0;
    for (int64_t t = 0; t < rows; ++t) {
        held = t && slot[t] == slot[t - 1] && held < rows_per_block ? held + 1 : 1;
        blocks += held == 1;
    }
    return blocks;
}

// Rows that pass over the cache together: with their heads at most 64 rows of scores and 8 MiB of them, so that the
// cache is read rarely, but at least four blocks a thread where 16 rows of scores leave the choice.
int64_t rows_together(const AttentionCall& call, int64_t group, int64_t stride, int64_t threads) {
    if (call.listed || group >= 64) return 1;
    const int64_t least = std::max<int64_t>(1, 16 / group);
    const int64_t shared = call.rows * call.kv_heads / (4 * threads);
    const int64_t held = (2 << 20) / std::max<int64_t>(1, group * stride);
    return std::max(least, std::min({64 / group, shared, held}));
}

// Whole blocks are shared out unless they are too few for the threads and the work is worth four forks (about 1 M
// multiply-adds, 50 us).
void attend(Native& native, const AttentionCall& call, int64_t longest) {
    const int64_t group = call.heads / call.kv_heads, threads = native.pool().threads();
    const int64_t stride = (longest + 15) / 16 * 16;
    AttentionPlan plan = {rows_together(call, group, stride, threads), stride, false};
    const int64_t blocks = count_blocks(call.slot, call.rows, plan.rows_per_block);
    plan.split = threads > 1 && blocks * call.kv_heads < 2 * threads &&
                 call.rows * call.heads * call.dim * longest >= 1 << 20;
    const int64_t areas = plan.split ? blocks * area_floats(plan, call.heads) : threads * area_floats(plan, group);
    std::lock_guard<std::mutex> lock(native.busy());
    pick_attention_kernels(native.isa()).attend(native.pool(), call, plan,
                                                reserve(native, starts_floats(call.rows) + areas));
}

void attention(Native& native, uintptr_t q, uintptr_t out, const nb::tuple& keys, const nb::tuple& values,
               uintptr_t slot, uintptr_t position, int64_t rows, int64_t heads, int64_t kv_heads, int64_t dim,
               float scale) {
    const PlaneArgs k = plane_of(keys), v = plane_of(values);
    const AttentionCall call = {at<const float>(q), at<float>(out), k.plane, v.plane, at<const int32_t>(slot),
                                at<const int32_t>(position), nullptr, nullptr, 0, rows, heads, kv_heads, dim, scale};
    nb::gil_scoped_release free;
    auto seen = [&](int64_t t) { return static_cast<int64_t>(call.position[t]) + 1; };
    const int64_t longest = check_rows(k, call.slot, call.position, rows, seen);
    check_rows(v, call.slot, call.position, rows, seen);
    attend(native, call, longest);
}

void sparse_attention(Native& native, uintptr_t q, uintptr_t out, const nb::tuple& keys, const nb::tuple& values,
                      uintptr_t slot, uintptr_t positions, uintptr_t count, int64_t list_width, int64_t rows,
                      int64_t heads, int64_t kv_heads, int64_t dim, float scale) {
    const PlaneArgs k = plane_of(keys), v = plane_of(values);
    const AttentionCall call = {at<const float>(q), at<float>(out), k.plane, v.plane, at<const int32_t>(slot), nullptr,
                                at<const int32_t>(positions), at<const int32_t>(count), list_width, rows, heads,
                                kv_heads, dim, scale};
    nb::gil_scoped_release free;
    int64_t longest = 0;
    for (int64_t t = 0; t < rows; ++t) {
        k.check_slot(call.slot[t]);
        v.check_slot(call.slot[t]);
        if (call.count[t] < 0 || call.count[t] > list_width)
            throw std::out_of_range("row " + std::to_string(t) + ": a count of " + std::to_string(call.count[t]) +
                                    " in a list of " + std::to_string(list_width));
        for (int64_t j = 0; j < call.count[t]; ++j) {
            k.page_of(call.slot[t], call.listed[t * list_width + j]);
            v.page_of(call.slot[t], call.listed[t * list_width + j]);
        }
        longest = std::max(longest, static_cast<int64_t>(call.count[t]));
    }
    attend(native, call, longest);
}

// Rows are taken in groups whose scores fit 64 MiB.
void select_blocks(Native& native, uintptr_t q, const nb::tuple& keys, uintptr_t slot, uintptr_t position, int64_t rows,
                   int64_t heads, int64_t dim, int64_t ratio, int64_t budget, uintptr_t positions, uintptr_t count) {
    const PlaneArgs k = plane_of(keys);
    SelectCall call = {at<const float>(q), k.plane, at<const int32_t>(slot), at<const int32_t>(position), rows, heads,
                       dim, ratio, budget, at<int32_t>(positions), at<int32_t>(count)};
    nb::gil_scoped_release free;
    const int64_t longest = check_rows(k, call.slot, call.position, rows, [&](int64_t t) {
        return (static_cast<int64_t>(call.position[t]) + 1) / ratio;
    });
    const int64_t stride = (longest + 15) / 16 * 16;
    const int64_t at_once = std::max<int64_t>(1, (16 << 20) / (stride + kSelectCounts));
    std::lock_guard<std::mutex> lock(native.busy());
    for (int64_t left = rows; left > 0; left -= at_once) {
        call.rows = std::min(left, at_once);
        pick_attention_kernels(native.isa()).select(native.pool(), call, stride,
                                                    reserve(native, call.rows * (stride + kSelectCounts)));
        call.q += call.rows * heads * dim;
        call.slot += call.rows;
        call.position += call.rows;
        call.positions += call.rows * (budget + 1) * ratio;
        call.count += call.rows;
    }
}

void cache_write(const nb::tuple& plane, uintptr_t slots, uintptr_t entries, uintptr_t x, int64_t n) {
    const PlaneArgs p = plane_of(plane);
    nb::gil_scoped_release free;
    const auto* slot = at<const int32_t>(slots);
    const auto* entry = at<const int32_t>(entries);
    for (int64_t i = 0; i < n; ++i) {
        p.check_slot(slot[i]);
        p.page_of(slot[i], entry[i]);
    }
    const int64_t width = p.plane.width;
    for (int64_t i = 0; i < n; ++i)
        memcpy(const_cast<float*>(p.plane.data) +
                   (p.page_of(slot[i], entry[i]) * p.plane.page + entry[i] % p.plane.page) * width,
               at<const float>(x) + i * width, static_cast<size_t>(width) * sizeof(float));
}

void pool_blocks(Native& native, const nb::tuple& raw, uintptr_t slots, uintptr_t blocks, int64_t n, int64_t ratio,
                 uintptr_t out) {
    const PlaneArgs p = plane_of(raw);
    nb::gil_scoped_release free;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t slot = at<const int32_t>(slots)[i], block = at<const int32_t>(blocks)[i];
        p.check_slot(slot);
        for (int64_t r = 0; r < ratio; ++r) p.page_of(slot, block * ratio + r);
    }
    pick_small_kernels(native.isa())
        .pool_blocks(native.pool(), p.plane, at<const int32_t>(slots), at<const int32_t>(blocks), n, ratio,
                     at<float>(out));
}

void causal_conv(Native& native, uintptr_t x, uintptr_t weight, uintptr_t history, uintptr_t out, uintptr_t segments,
                 int64_t num_segments, int64_t slots, int64_t rows, int64_t channels, int64_t taps, int64_t dilation) {
    const ConvCall call = {at<const float>(x), at<const float>(weight), at<float>(history), at<float>(out),
                           at<const int32_t>(segments), rows, num_segments, channels, taps, dilation};
    check_segments(call.segments, num_segments, rows, slots);
    std::lock_guard<std::mutex> lock(native.busy());
    pick_recurrent_kernels(native.isa())
        .conv(native.pool(), call, reserve(native, native.pool().threads() * taps * kConvChannels));
}

void delta_rule(Native& native, uintptr_t qkv, uintptr_t beta, uintptr_t decay, uintptr_t state, uintptr_t out,
                uintptr_t segments, int64_t num_segments, int64_t slots, int64_t rows, int64_t key_heads,
                int64_t value_heads, int64_t key_dim, int64_t value_dim, bool tiled, float eps, float scale) {
    const DeltaCall call = {at<const float>(qkv), at<const float>(beta), at<const float>(decay), at<float>(state),
                            at<float>(out), at<const int32_t>(segments), rows, num_segments, key_heads, value_heads,
                            key_dim, value_dim, tiled, eps, scale};
    check_segments(call.segments, num_segments, rows, slots);
    std::lock_guard<std::mutex> lock(native.busy());
    pick_recurrent_kernels(native.isa())
        .delta(native.pool(), call, reserve(native, native.pool().threads() * delta_floats(key_dim)));
}

void route(Native& native, uintptr_t logits, uintptr_t ids, uintptr_t weights, int64_t rows, int64_t experts,
           int64_t top_k, bool renormalise) {
    std::lock_guard<std::mutex> lock(native.busy());
    pick_small_kernels(native.isa())
        .route(native.pool(), at<const float>(logits), at<int32_t>(ids), at<float>(weights), rows, experts, top_k,
               renormalise, reserve(native, native.pool().threads() * experts));
}

void rms_norm(Native& native, uintptr_t x, uintptr_t weight, uintptr_t y, int64_t groups, int64_t group,
              int64_t weight_len, float eps) {
    pick_norm_kernels(native.isa())
        .rms_norm(native.pool(), at<const float>(x), at<const float>(weight), at<float>(y), groups, group, weight_len,
                  eps);
}

void l2_norm(Native& native, uintptr_t x, uintptr_t y, int64_t rows, int64_t dim, float eps, float scale) {
    pick_norm_kernels(native.isa())
        .l2_norm(native.pool(), at<const float>(x), at<float>(y), rows, dim, eps, scale);
}

void row_dot(Native& native, uintptr_t a, uintptr_t b, uintptr_t y, int64_t rows, int64_t dim) {
    pick_norm_kernels(native.isa())
        .row_dot(native.pool(), at<const float>(a), at<const float>(b), at<float>(y), rows, dim);
}

void rope(Native& native, uintptr_t x, uintptr_t cos, uintptr_t sin, uintptr_t y, int64_t rows, int64_t heads,
          int64_t dim, int64_t half, bool pairs) {
    pick_norm_kernels(native.isa())
        .rope(native.pool(), at<const float>(x), at<const float>(cos), at<const float>(sin), at<float>(y), rows, heads,
              dim, half, pairs);
}

void stream_mix(Native& native, uintptr_t gate, uintptr_t x, uintptr_t y, int64_t rows, int64_t streams,
                int64_t hidden) {
    pick_small_kernels(native.isa())
        .stream_mix(native.pool(), at<const float>(gate), at<const float>(x), at<float>(y), rows, streams, hidden);
}

void stream_add(Native& native, uintptr_t residual, uintptr_t y, uintptr_t weights, uintptr_t out, int64_t rows,
                int64_t streams, int64_t hidden) {
    pick_small_kernels(native.isa())
        .stream_add(native.pool(), at<const float>(residual), at<const float>(y), at<const float>(weights),
                    at<float>(out), rows, streams, hidden);
}

}  // namespace

void bind_layers(nb::module_& m) {
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("attention", &attention);
    m.def("sparse_attention", &sparse_attention);
    m.def("select_blocks", &select_blocks);
    m.def("cache_write", &cache_write);
    m.def("pool_blocks", &pool_blocks);
    m.def("causal_conv", &causal_conv, Free());
    m.def("delta_rule", &delta_rule, Free());
    m.def("route", &route, Free());
    m.def("rms_norm", &rms_norm, Free());
    m.def("l2_norm", &l2_norm, Free());
    m.def("row_dot", &row_dot, Free());
    m.def("rope", &rope, Free());
    m.def("stream_mix", &stream_mix, Free());
    m.def("stream_add", &stream_add, Free());
}

}  // namespace strata
